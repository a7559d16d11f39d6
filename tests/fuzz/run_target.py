"""Runs one target under atheris: `python -m tests.fuzz.run_target NAME CORPUS_DIRECTORY [libFuzzer's flags]`.

Message decoders are generated at run time, so instrumenting imports misses them. They are instrumented where they are
compiled; otherwise the fuzzer would see no coverage of the decoders, which are the code it is meant to test.
"""

import sys
from typing import Any

import atheris

_INSTRUMENTED = ["analytics", "broker", "common", "controller", "tools"]


def main() -> None:
    name, *flags = sys.argv[1:]
    with atheris.instrument_imports(include=_INSTRUMENTED, enable_loader_override=False):
        from common.protocol.source import Source
        from tests.fuzz.targets import TARGETS

    compile_plainly = Source.compile

    def compile_instrumented(self: Source, function_name: str, label: str) -> Any:
        return atheris.instrument_func(compile_plainly(self, function_name, label))

    Source.compile = compile_instrumented  # type: ignore[method-assign]
    target = TARGETS[name]
    # Run the seeds once, so that all decoders are compiled before the fuzzer's clock starts.
    for seed in target.seeds():
        target.check(seed)
    atheris.Setup([sys.argv[0], *flags], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
