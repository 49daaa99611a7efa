// KafkaJS against the broker named in argv: `node scenarios.js SCENARIO BOOTSTRAP TOPIC GROUP`. Prints one JSON value.
// KAFKAJS_SECURITY has JSON of its options `ssl` and `sasl`. The asserting is done by test_kafkajs.py and test_with_rights.py.
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')

const [scenario, bootstrap, topic, group] = process.argv.slice(2)
const security = JSON.parse(process.env.KAFKAJS_SECURITY ?? '{}')
const kafka = new Kafka({ clientId: 'ottla-tests', brokers: [bootstrap], logLevel: logLevel.ERROR, ...security })

const text = buffer => (buffer === null || buffer === undefined ? null : buffer.toString())

async function produce (count, options = {}) {
  const producer = kafka.producer({ idempotent: options.idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  const messages = [...Array(count).keys()].map(i => ({
    key: `k${i}`, value: `value ${i}`, timestamp: String(5000 + i), headers: { a: '1', b: Buffer.from([255]) }
  }))
  const sent = await producer.send({ topic, messages, acks: options.acks ?? -1, compression: options.compression })
  await producer.disconnect()
  return sent
}

// Reads `count` messages in a group, then leaves it.
async function consume (count, options = {}) {
  const consumer = kafka.consumer({
    groupId: group, heartbeatInterval: 200, sessionTimeout: 6000, rebalanceTimeout: 6000, maxWaitTimeInMs: 100
  })
  const received = []
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (received.length === count) return
        received.push({
          partition,
          offset: message.offset,
          timestamp: message.timestamp,
          key: text(message.key),
          value: text(message.value),
          headers: Object.fromEntries(Object.entries(message.headers).map(([k, v]) => [k, v.toString('hex')]))
        })
        if (received.length === count) resolve()
      }
    }).then(() => { if (options.seek !== undefined) consumer.seek({ topic, partition: 0, offset: options.seek }) })
  })
  if (options.commit) await consumer.commitOffsets([{ topic, partition: 0, offset: options.commit }])
  await consumer.disconnect()
  return received
}

// Answers with a function that waits until each of some members has so many partitions.
function sharesOf (members) {
  const counts = new Map()
  for (const member of members) {
    member.on(member.events.GROUP_JOIN, event => {
      counts.set(member, (event.payload.memberAssignment[topic] ?? []).length)
    })
  }
  return async wanted => {
    for (let tries = 0; tries < 1200; tries++) {
      if (wanted.every(([member, count]) => counts.get(member) === count)) return
      await new Promise(resolve => setTimeout(resolve, 50))
    }
    throw new Error(`shares are ${[...counts.values()]}, not ${wanted.map(([, count]) => count)}`)
  }
}

const scenarios = {
  async roundTrip () {
    const sent = await produce(50, { compression: CompressionTypes.GZIP })
    return { sent, received: await consume(50) }
  },

  async plain () {
    const sent = await produce(20)
    return { sent, received: await consume(20) }
  },

  async idempotent () {
    return { sent: await produce(20, { idempotent: true }), received: await consume(20) }
  },

  async commit () {
    await produce(10)
    await consume(3, { commit: '3' })
    return (await consume(7)).map(message => message.offset)
  },

  async seek () {
    await produce(10)
    return (await consume(2, { seek: '8' })).map(message => message.offset).slice(-2)
  },

  async rebalance () {
    // It sends heartbeats between fetches only, so that long fetches mean late rebalances.
    const options = { groupId: group, heartbeatInterval: 100, sessionTimeout: 6000, maxWaitTimeInMs: 100 }
    const [one, two] = [0, 1].map(() => kafka.consumer(options))
    const shares = sharesOf([one, two])
    const run = async member => {
      await member.connect()
      await member.subscribe({ topic })
      await member.run({ eachMessage: async () => {} })
    }
    await run(one)
    await shares([[one, 4]])
    await run(two)
    await shares([[one, 2], [two, 2]])
    await two.disconnect()
    await shares([[one, 4]])
    await one.disconnect()
    return 'shared'
  },

  async admin () {
    const admin = kafka.admin()
    await admin.connect()
    const created = await admin.createTopics({
      waitForLeaders: true,
      topics: [{ topic, numPartitions: 2, replicationFactor: 1, configEntries: [{ name: 'retention.ms', value: '-1' }] }]
    })
    const again = await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] })
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.bytes', value: '77' }] }]
    })
    const configs = await admin.describeConfigs({
      includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.bytes'] }]
    })
    await produce(5)
    await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '1' }] })
    const offsets = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, 0)
    const groups = await admin.listGroups()
    const described = await admin.describeGroups([group])
    await admin.deleteGroups([group])
    const ends = await admin.fetchTopicOffsets(topic)
    await admin.deleteTopicRecords({ topic, partitions: ends.map(({ partition, high }) => ({ partition, offset: high })) })
    const afterDeletion = await admin.fetchTopicOffsets(topic)
    const cluster = await admin.describeCluster()
    await admin.deleteTopics({ topics: [topic] })
    await admin.disconnect()
    return {
      created,
      again,
      configs: configs.resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]),
      offset: offsets[0].partitions.find(({ partition }) => partition === 0).offset,
      byTime: byTime.length,
      listed: groups.groups.map(({ groupId }) => groupId).includes(group),
      state: described.groups[0].state,
      high: ends.map(({ high }) => Number(high)).reduce((a, b) => a + b),
      emptied: afterDeletion.every(({ low, high }) => low === high),
      brokers: cluster.brokers.length,
      controller: cluster.controller === cluster.brokers[0].nodeId
    }
  }
}

scenarios[scenario]().then(
  answer => { console.log(JSON.stringify(answer)); process.exit(0) },
  error => { console.error(error); process.exit(1) }
)
