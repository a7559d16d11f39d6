// @platformatic/kafka with its default settings. It compresses with zstd only where Node.js does (22.15 and later).
import { setTimeout } from 'node:timers/promises'
import {
  Admin, Consumer, MessagesStreamFallbackModes, MessagesStreamModes, Producer, compressionsAlgorithms, stringDeserializers,
  stringSerializers
} from '@platformatic/kafka'
import { givenRecords, main, say, untilItSucceeds, untilToldToEnd } from './commands.mjs'

const options = bootstrap => ({ clientId: 'interop', bootstrapBrokers: bootstrap.split(',') })

async function withAdmin (bootstrap, action) {
  const admin = new Admin(options(bootstrap))
  try {
    return await action(admin)
  } finally {
    await admin.close()
  }
}

// An application can leave a group only through the coordinator that its consumer knows, an administrator through any.
async function removeMember (bootstrap, groupId, memberId) {
  if (memberId === null) return
  for (;;) {
    try {
      await withAdmin(bootstrap, admin => admin.removeMembersFromConsumerGroup({ groupId, members: [{ memberId }] }))
      return
    } catch (error) {
      if (error.findBy?.('unknownMemberId', true)) return
      console.error(error)
      await setTimeout(1000)
    }
  }
}

await main({
  async compressions () {
    const available = Object.entries(compressionsAlgorithms).filter(([, algorithm]) => algorithm.available)
    say({ compressions: available.map(([name]) => name) })
  },

  async create (bootstrap, topic, partitions) {
    const wanted = { topics: [topic], partitions: Number(partitions), replicas: 3 }
    await withAdmin(bootstrap, admin => admin.createTopics(wanted))
  },

  async list (bootstrap) {
    say({ topics: await withAdmin(bootstrap, admin => admin.listTopics()) })
  },

  async delete (bootstrap, topic) {
    await withAdmin(bootstrap, admin => admin.deleteTopics({ topics: [topic] }))
  },

  async produce (bootstrap, topic, compression) {
    const producer = new Producer({ ...options(bootstrap), serializers: stringSerializers })
    for await (const { partition, value } of givenRecords()) {
      await untilItSucceeds(() => producer.send({ compression, messages: [{ topic, partition, value }] }))
      say({ acked: value })
    }
    await producer.close()
  },

  async consume (bootstrap, topic, group) {
    let current = null
    let isEnding = false

    // Version 1.35.0 does not recover from some failures by itself, whatever the brokers do. A consumer looks for its
    // coordinator once in its life, sends no heartbeat after one that failed, forgets the offsets of a commit that failed, and
    // ends its stream after four failed fetches, a second apart. The application has to make another consumer, which begins at
    // what is committed. It also has to take the old member out of the group: the old consumer asks the former coordinator for
    // that, and joining a group that waits for a dead member takes longer than this client waits for a response.
    const begin = async () => {
      const consumer = current = new Consumer({ ...options(bootstrap), groupId: group, deserializers: stringDeserializers })
      const report = () => {
        const mine = consumer.assignments?.find(assignment => assignment.topic === topic)
        say({ assigned: mine?.partitions ?? [] })
      }
      const replace = async error => {
        if (current !== consumer || isEnding) return
        current = null
        console.error(error)
        say({ assigned: [] })
        await Promise.all([consumer.close(true).catch(console.error), removeMember(bootstrap, group, consumer.memberId)])
        await begin()
      }
      consumer.on('consumer:group:join', report)
      consumer.on('consumer:heartbeat:error', ({ error }) => replace(error))
      consumer.on('error', replace)
      try {
        const stream = await consumer.consume({
          topics: [topic],
          mode: MessagesStreamModes.COMMITTED,
          fallbackMode: MessagesStreamFallbackModes.EARLIEST,
          autocommit: true
        })
        stream.on('data', message => say({ read: [message.partition, Number(message.offset), message.value] }))
        stream.on('error', replace)
        stream.on('autocommit', error => error && replace(error))
        report()
      } catch (error) {
        await replace(error)
      }
    }

    await begin()
    await untilToldToEnd()
    isEnding = true
    await current?.close(true)
  }
})
