// What the tests make KafkaJS do: `node kafkajs.js COMMAND ADDRESS …`. Prints JSON. Run by kafkajs.py.
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString('base64'))
const bytes = (base64) => (base64 === null ? null : Buffer.from(base64, 'base64'))

const tell = (what) => console.log(JSON.stringify(what))

// Rows are [key, value, [[name, value], …], timestamp], bytes as base64.
async function write(kafka, topic, codec, transactionalId, ending) {
  const rows = JSON.parse(require('fs').readFileSync(0, 'utf8'))
  const messages = rows.map(([key, value, headers, timestamp]) => ({
    key: bytes(key),
    value: bytes(value),
    partition: 0,
    headers: Object.fromEntries(headers.map(([name, each]) => [name, bytes(each)])),
    timestamp: `${timestamp}`,
  }))
  const settings = { idempotent: true, maxInFlightRequests: 1 }
  const producer = kafka.producer(transactionalId ? { ...settings, transactionalId } : settings)
  await producer.connect()
  const sender = transactionalId ? await producer.transaction() : producer
  await sender.send({ topic, messages, compression: CompressionTypes[codec.toUpperCase()] })
  if (transactionalId) await sender[ending]()
  await producer.disconnect()
}

async function read(kafka, topic, count, group, readUncommitted) {
  const consumer = kafka.consumer({ groupId: group, readUncommitted: readUncommitted === 'true', maxBytesPerPartition: 8 << 20 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const rows = []
  await new Promise((resolve, reject) => {
    consumer
      .run({
        eachMessage: async ({ message }) => {
          if (rows.length >= Number(count)) return
          const headers = Object.entries(message.headers || {}).map(([name, value]) => [name, text(value)])
          rows.push([text(message.key), text(message.value), headers, Number(message.timestamp)])
          if (rows.length === Number(count)) {
            await consumer.commitOffsets([{ topic, partition: 0, offset: `${Number(message.offset) + 1}` }])
            resolve()
          }
        },
      })
      .catch(reject)
  })
  await consumer.disconnect()
  tell(rows)
}

// Two members share four partitions; when the first leaves, the second has all of them.
async function share(kafka, topic) {
  const shares = [[], []]
  const members = [0, 1].map((number) => {
    const consumer = kafka.consumer({ groupId: topic, sessionTimeout: 6000, heartbeatInterval: 100, maxWaitTimeInMs: 100 })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      shares[number] = payload.memberAssignment[topic] || []
    })
    return consumer
  })
  const until = async (condition) => {
    while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20))
  }
  for (const member of members) {
    await member.connect()
    await member.subscribe({ topics: [topic], fromBeginning: true })
    await member.run({ eachMessage: async () => {} })
  }
  await until(() => shares[0].length === 2 && shares[1].length === 2)
  const together = [...shares[0], ...shares[1]].sort()
  await members[0].disconnect()
  await until(() => shares[1].length === 4)
  await members[1].disconnect()
  tell({ together, alone: shares[1].sort() })
}

// Copies one topic to another exactly once, for ever; prints the offset of each commit.
async function transform(kafka, source, target) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId: 'transform' })
  await producer.connect()
  const consumer = kafka.consumer({ groupId: 'transform', sessionTimeout: 1500, heartbeatInterval: 100 })
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      for (let at = 0; at < batch.messages.length; at += 10) {
        const some = batch.messages.slice(at, at + 10)
        const last = some[some.length - 1].offset
        const transaction = await producer.transaction()
        await transaction.send({ topic: target, messages: some.map(({ value }) => ({ value, partition: 0 })) })
        const offsets = [{ partition: batch.partition, offset: `${Number(last) + 1}` }]
        await transaction.sendOffsets({ consumerGroupId: 'transform', topics: [{ topic: batch.topic, partitions: offsets }] })
        await transaction.commit()
        resolveOffset(last)
        console.log(last)
        await heartbeat()
      }
    },
  })
}

// Expects a group of the topic's name.
async function admin(kafka, topic) {
  const client = kafka.admin()
  await client.connect()
  const configEntries = [{ name: 'retention.ms', value: '5000' }]
  await client.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1, configEntries }] })
  await client.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  const { topics } = await client.fetchTopicMetadata({ topics: [topic] })
  const resource = { type: 2, name: topic, configNames: ['retention.ms'] }
  const { resources } = await client.describeConfigs({ resources: [resource], includeSynonyms: false })
  const groups = (await client.listGroups()).groups.map(({ groupId }) => groupId)
  await client.deleteGroups([topic])
  await client.deleteTopics({ topics: [topic], timeout: 500 })
  tell({
    partitions: topics[0].partitions.length,
    retention: resources[0].configEntries[0].configValue,
    isGroupListed: groups.includes(topic),
    isTopicLeft: (await client.listTopics()).includes(topic),
  })
  await client.disconnect()
}

const [command, address, ...rest] = process.argv.slice(2)
const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: 50 }
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [address], logLevel: logLevel.NOTHING, retry })
const commands = { write, read, share, transform, admin }
commands[command](kafka, ...rest).catch((error) => {
  console.error(error)
  process.exit(1)
})
