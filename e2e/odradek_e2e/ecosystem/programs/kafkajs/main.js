// kafkajs against the checks of the ecosystem suite (odradek_e2e/ecosystem/contract.py).
'use strict'

const kafkajs = require('kafkajs')
const snappy = require('kafkajs-snappy')
const { bootstrap, RECORDS, PARTITIONS, topic, message, check, deadline, compare } = require('./check')

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = snappy

const kafka = new Kafka({
  clientId: 'ecosystem',
  brokers: bootstrap.split(','),
  logLevel: logLevel.ERROR,
  logCreator: () => ({ log }) => console.error(log.message, log.error || ''),
})
// Reads `count` records from the beginning; transactions that are open or aborted are left out.
async function read(from, count) {
  const consumer = kafka.consumer({ groupId: `${from}-reader` })
  const found = []
  await consumer.connect()
  await consumer.subscribe({ topics: [from], fromBeginning: true })
  try {
    await deadline(new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({
        eachMessage: async ({ message }) => {
          found.push(message)
          if (found.length === count) resolve()
        },
      }).catch(reject)
    }), () => `${found.length} of ${count} records`)
  } finally {
    await consumer.disconnect()
  }
  return found
}

async function roundTrip(name, what, compression, options = {}) {
  const producer = kafka.producer(options)
  await producer.connect()
  const messages = Array.from({ length: RECORDS }, (_, i) => message(what, i))
  await producer.send({ topic: topic(name), acks: -1, compression, messages })
  await producer.disconnect()
  const found = await read(topic(name), RECORDS)
  found.forEach((one, i) => compare(what, i, one))
}

async function admin() {
  const client = kafka.admin()
  await client.connect()
  await client.createTopics({
    waitForLeaders: true,
    topics: [{ topic: topic('admin'), numPartitions: 3, replicationFactor: 1 }],
  })
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic('admin') }
  await client.alterConfigs({
    resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '3600000' }] }],
  })
  const { resources } = await client.describeConfigs({
    resources: [{ ...resource, configNames: ['retention.ms'] }],
    includeSynonyms: false,
  })
  const described = resources[0].configEntries[0].configValue
  if (described !== '3600000') throw new Error(`retention.ms is described as ${described}`)
  await client.deleteTopics({ topics: [topic('gone')] })
  await client.disconnect()
}

async function member(name, owned, changed) {
  const consumer = kafka.consumer({ groupId: topic('group'), heartbeatInterval: 500 })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    owned[name] = (payload.memberAssignment[topic('group')] || []).length
    changed()
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic('group')], fromBeginning: true })
  await consumer.run({ eachMessage: async () => {} })
  return consumer
}

async function groups() {
  const owned = {}
  let look = () => {}
  const until = (wanted) => deadline(new Promise((resolve) => {
    look = () => {
      if (Object.entries(wanted).every(([name, count]) => owned[name] === count)) resolve()
    }
    look()
  }), () => `members own ${JSON.stringify(owned)}, not ${JSON.stringify(wanted)}`)
  const a = await member('a', owned, () => look())
  await until({ a: PARTITIONS })
  const b = await member('b', owned, () => look())
  await until({ a: PARTITIONS / 2, b: PARTITIONS / 2 })
  await a.disconnect()
  await until({ b: PARTITIONS })
  await b.disconnect()
}

async function transactions() {
  const producer = kafka.producer({
    transactionalId: topic('txn'), idempotent: true, maxInFlightRequests: 1,
  })
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
  await check('records none', () => roundTrip('none', 'none', CompressionTypes.None))
  await check('records gzip', () => roundTrip('gzip', 'gzip', CompressionTypes.GZIP))
  await check('records snappy', () => roundTrip('snappy', 'snappy', CompressionTypes.Snappy))
  const plugin = 'no lz4 and zstd, for which kafkajs needs native plug-ins'
  for (const name of ['records lz4', 'records zstd']) console.log(`absent ${name}: ${plugin}`)
  console.log(`absent others: ${plugin}`)
  await check('group', groups)
  await check('idempotent', () => roundTrip('idempotent', 'idempotent', CompressionTypes.None, {
    idempotent: true, maxInFlightRequests: 1,
  }))
  await check('transactions', transactions)
}

main().then(() => process.exit(0))
