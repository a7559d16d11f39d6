"""The principal inside an Envelope (KIP-590) (core).

The encoded principal follows a two-byte version. Diskraft only has principals of type "User".
"""

from common.protocol.schema import Kind, Struct, message


@message(kind=Kind.DATA, versions="0", flexible="0+")
class DefaultPrincipalData(Struct):
    type: str = ""
    name: str = ""
    token_authenticated: bool = False
