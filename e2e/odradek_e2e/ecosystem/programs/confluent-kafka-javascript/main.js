// confluent-kafka-javascript against the checks of the ecosystem suite, through its KafkaJS-like API.
'use strict'

const { KafkaJS, features } = require('@confluentinc/kafka-javascript')
const {
  bootstrap, RECORDS, PARTITIONS, DEADLINE_MS, topic, message, check, deadline, compare,
} = require('./check')

const { Kafka, CompressionTypes, logLevel } = KafkaJS
const kafka = new Kafka({ kafkaJS: { brokers: bootstrap.split(','), logLevel: logLevel.ERROR } })

function consumer(groupId, options = {}) {
  const kafkaJS = { groupId, fromBeginning: true, readUncommitted: false, autoCommit: false }
  return kafka.consumer({ kafkaJS: { ...kafkaJS, ...options } })
}

async function read(from, count) {
  const reader = consumer(`${from}-reader`)
  const found = []
  await reader.connect()
  await reader.subscribe({ topics: [from] })
  try {
    await deadline(new Promise((resolve, reject) => {
      reader.run({
        eachMessage: async ({ message }) => {
          found.push(message)
          if (found.length === count) resolve()
        },
      }).catch(reject)
    }), () => `${found.length} of ${count} records`)
  } finally {
    await reader.disconnect()
  }
  return found
}

async function roundTrip(name, what, options) {
  const producer = kafka.producer({ kafkaJS: { acks: -1, ...options } })
  await producer.connect()
  const messages = Array.from({ length: RECORDS }, (_, i) => message(what, i))
  await producer.send({ topic: topic(name), messages })
  await producer.disconnect()
  const found = await read(topic(name), RECORDS)
  found.forEach((one, i) => compare(what, i, one))
}

async function others() {
  const found = await read(topic('others'), 250)
  const codecs = ['none', 'gzip', 'snappy', 'lz4', 'zstd']
  found.forEach((one, i) => compare(codecs[Math.floor(i / 50)], i % 50, one))
}

async function admin() {
  const client = kafka.admin()
  await client.connect()
  const configEntries = [{ name: 'retention.ms', value: '3600000' }]
  await client.createTopics({
    topics: [{ topic: topic('admin'), numPartitions: 3, replicationFactor: 1, configEntries }],
  })
  await client.deleteTopics({ topics: [topic('gone')] })
  const there = await client.listTopics()
  if (!there.includes(topic('admin'))) throw new Error('the created topic is not listed')
  await client.disconnect()
}

async function groups() {
  const members = []
  async function join() {
    const one = consumer(topic('group'), { heartbeatInterval: 500 })
    await one.connect()
    await one.subscribe({ topics: [topic('group')] })
    await one.run({ eachMessage: async () => {} })
    members.push(one)
    return one
  }
  async function until(...wanted) {
    const late = Date.now() + DEADLINE_MS
    for (;;) {
      const owned = members.map((one) => one.assignment().length)
      if (owned.join() === wanted.join()) return
      if (Date.now() > late) throw new Error(`members own ${owned}, not ${wanted}`)
      await new Promise((resolve) => { setTimeout(resolve, 50) })
    }
  }
  const a = await join()
  await until(PARTITIONS)
  await join()
  await until(PARTITIONS / 2, PARTITIONS / 2)
  members.shift()
  await a.disconnect()
  await until(PARTITIONS)
  await members[0].disconnect()
}

async function transactions() {
  const producer = kafka.producer({ kafkaJS: { transactionalId: topic('txn') } })
  await producer.connect()
  for (const what of ['first', 'aborted', 'second']) {
    const transaction = await producer.transaction()
    const messages = Array.from({ length: 10 }, (_, i) => message(what, i))
    await transaction.send({ topic: topic('txn'), messages })
    if (what === 'aborted') await transaction.abort()
    else await transaction.commit()
  }
  await producer.disconnect()
  const found = await read(topic('txn'), 20)
  found.forEach((one, i) => compare(i < 10 ? 'first' : 'second', i % 10, one))
}

async function main() {
  await check('admin', admin)
  const codecs = {
    none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.SNAPPY,
    lz4: CompressionTypes.LZ4,
  }
  for (const [name, compression] of Object.entries(codecs)) {
    await check(`records ${name}`, () => roundTrip(name, name, { compression }))
  }
  if (features.includes('zstd')) {
    await check('records zstd', () => roundTrip('zstd', 'zstd', { compression: CompressionTypes.ZSTD }))
    await check('others', others)
  } else {
    const built = 'compiled without zstd, whose sources its installer would download'
    for (const name of ['records zstd', 'others']) console.log(`absent ${name}: ${built}`)
  }
  await check('group', groups)
  await check('idempotent', () => roundTrip('idempotent', 'idempotent', { idempotent: true }))
  await check('transactions', transactions)
}

main().then(() => process.exit(0))
