// What the Node programs of the ecosystem suite share: node main.js BOOTSTRAP PREFIX prints one line
// per check, as odradek_e2e/ecosystem/contract.py says.
'use strict'

const [bootstrap, prefix] = process.argv.slice(2)
const RECORDS = 100
const PARTITIONS = 4
const DEADLINE_MS = 120000
const topic = (name) => `${prefix}-${name}`
const value = (what, i) => `${what} ${i} ${'a'.repeat(40)}`
const message = (what, i) => ({
  key: `k${i}`, value: value(what, i), headers: { n: `${i}` }, partition: 0,
})

async function check(name, work) {
  try {
    await work()
    console.log(`ok ${name}`)
  } catch (error) {
    console.log(`failed ${name}: ${String(error.stack || error).replace(/\n/g, ' | ')}`)
  }
}

function deadline(promise, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what()} after ${DEADLINE_MS} ms`)), DEADLINE_MS)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

function compare(what, i, found) {
  const seen = [found.key, found.value, found.headers.n].map(String)
  const wanted = [`k${i}`, value(what, i), `${i}`]
  if (seen.join('|') !== wanted.join('|')) {
    throw new Error(`record ${i} of ${what}: ${seen.join(', ')}`)
  }
}

module.exports = {
  bootstrap, RECORDS, PARTITIONS, DEADLINE_MS, topic, message, check, deadline, compare,
}
