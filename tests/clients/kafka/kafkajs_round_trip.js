// Writes with KafkaJS, reads in a group, in a transaction; prints what it read as JSON. Run by test_kafka_other_languages.py.
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

async function main([address, topic]) {
  const kafka = new Kafka({ clientId: 'kafkajs', brokers: [address], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] })

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId: `writer-of-${topic}` })
  await producer.connect()
  const committed = await producer.transaction()
  await committed.send({
    topic,
    compression: CompressionTypes.GZIP,
    messages: [
      { key: 'key', value: 'value', headers: { header: 'text' }, timestamp: '1700000000000' },
      { key: 'without a value', value: null, timestamp: '1700000000001' },
    ],
  })
  await committed.commit()
  const aborted = await producer.transaction()
  await aborted.send({ topic, messages: [{ value: 'never' }] })
  await aborted.abort()
  const last = await producer.transaction()
  await last.send({ topic, messages: [{ key: null, value: 'last', timestamp: '1700000000002' }] })
  await last.commit()
  await producer.disconnect()

  const consumer = kafka.consumer({ groupId: topic, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const read = []
  await new Promise((resolve, reject) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        read.push([message.key && message.key.toString(), message.value && message.value.toString(), message.offset])
        if (read.length === 3) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
  const groups = (await admin.listGroups()).groups.map((group) => group.groupId)
  await admin.disconnect()
  console.log(JSON.stringify({ read, isListed: groups.includes(topic) }))
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error)
  process.exit(1)
})
