// kafkajs with its default settings. Of the compression types it has gzip; the others are plugins of other authors.
import kafkajs from 'kafkajs'
import { givenRecords, main, say, untilItSucceeds, untilToldToEnd } from './commands.mjs'

const { CompressionTypes, Kafka, logLevel } = kafkajs
const COMPRESSIONS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }

// The log goes to stderr, because stdout is read by the test.
const logCreator = () => ({ log }) => console.error(log.message, JSON.stringify(log))
const client = bootstrap => new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.ERROR, logCreator })

async function withAdmin (bootstrap, action) {
  const admin = client(bootstrap).admin()
  await admin.connect()
  const result = await action(admin)
  await admin.disconnect()
  return result
}

await main({
  async compressions () {
    say({ compressions: Object.keys(COMPRESSIONS) })
  },

  async create (bootstrap, topic, partitions) {
    const topics = [{ topic, numPartitions: Number(partitions), replicationFactor: 3 }]
    await withAdmin(bootstrap, admin => admin.createTopics({ topics }))
  },

  async list (bootstrap) {
    say({ topics: await withAdmin(bootstrap, admin => admin.listTopics()) })
  },

  async delete (bootstrap, topic) {
    await withAdmin(bootstrap, admin => admin.deleteTopics({ topics: [topic] }))
  },

  async produce (bootstrap, topic, compression) {
    const producer = client(bootstrap).producer()
    await producer.connect()
    for await (const { partition, value } of givenRecords()) {
      const messages = [{ partition, value }]
      await untilItSucceeds(() => producer.send({ topic, compression: COMPRESSIONS[compression], messages }))
      say({ acked: value })
    }
    await producer.disconnect()
  },

  async consume (bootstrap, topic, group) {
    const consumer = client(bootstrap).consumer({ groupId: group })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say({ assigned: payload.memberAssignment[topic] ?? [] }))
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ partition, message }) => say({ read: [partition, Number(message.offset), message.value.toString()] })
    })
    await untilToldToEnd()
    await consumer.disconnect()
  }
})
