// The commands that both clients have, and the lines that they print; see programs.py, which starts them.
import { createInterface } from 'node:readline'

export function say (what) {
  process.stdout.write(JSON.stringify(what) + '\n')
}

// Runs the command that the arguments name. A failure goes to stderr in full, and the exit status is 1.
export async function main (commands) {
  const [name, ...rest] = process.argv.slice(2)
  try {
    await commands[name](...rest)
  } catch (error) {
    console.error(error)
    process.exit(1)
  }
  process.exit(0)
}

export async function * givenRecords () {
  for await (const line of createInterface({ input: process.stdin })) {
    const [partition, value] = line.split(' ')
    yield { partition: Number(partition), value }
  }
}

// Sends as often as needed. Both clients give up before the session of a killed broker is over, or about then, and only then
// do its partitions have other leaders: @platformatic/kafka after three seconds, kafkajs after ten, with metadata that is five
// seconds old. The application has to send again.
export async function untilItSucceeds (send) {
  for (;;) {
    try {
      return await send()
    } catch (error) {
      console.error(error)
    }
  }
}

export async function untilToldToEnd () {
  for await (const _ of process.stdin);
}
