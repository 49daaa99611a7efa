// Runs testcontainers' module for Node on a stand-in for a container, and prints as JSON how the module starts the container.
//
//     node testcontainers_node.js FOLDER kraft|zookeeper|scram
//
// FOLDER has node_modules with @testcontainers/kafka and compare-versions, as they are published.
const Module = require("module");
const path = require("path");

const told = { variables: {}, entrypoint: null, command: null, files: {}, pattern: null, port: 9093, given: {} };
const container = {
  getId: () => "1",
  getHost: () => "localhost",
  getMappedPort: (port) => port,
  copyContentToContainer: async (files) => {
    for (const each of files) told.files[each.target] = [each.content, each.mode];
  },
};

class GenericContainer {
  constructor(image) {
    this.imageName = { tag: image.split(":")[1] };
    Object.assign(this, { environment: {}, exposedPorts: [], networkAliases: [], waitStrategy: {} });
  }
  withExposedPorts() { return this; }
  withStartupTimeout() { return this; }
  withEnvironment(variables) { Object.assign(this.environment, variables); return this; }
  withEntrypoint(words) { told.entrypoint = words; return this; }
  withCommand(words) { told.command = words; return this; }
  withCopyContentToContainer(files) {
    for (const each of files) told.given[each.target] = each.content.toString("base64");
    return this;
  }
  async selectWaitStrategy() { return { withStartupTimeout: () => {} }; }
  async start() {
    await this.beforeContainerCreated();
    told.variables = this.environment;
    await this.containerStarted(container, { hostname: "broker" });
    return container;
  }
}

const standIn = {
  GenericContainer,
  AbstractStartedContainer: class { constructor(started) { this.started = started; } },
  RandomUuid: class { nextUuid() { return "1"; } },
  BoundPorts: { fromInspectResult: () => ({ filter: () => ({}) }) },
  Wait: { forLogMessage: () => ({}) },
  getContainerRuntimeClient: async () => ({
    info: { containerRuntime: { hostIps: [] } },
    container: { getById: () => ({}), inspect: async () => ({}) },
  }),
  waitForContainer: async () => {},
};
const load = Module._load;
Module._load = (name, ...rest) => (name === "testcontainers" ? standIn : load(name, ...rest));

const { KafkaContainer } = require(path.join(process.argv[2], "node_modules", "@testcontainers", "kafka"));
// The module chooses KRaft for images from 8.0.0 on.
const kafka = new KafkaContainer(process.argv[3] === "zookeeper" ? "ottla:7.6.0" : "ottla:8.0.0");
if (process.argv[3] === "scram") {
  kafka.withSaslSslListener({
    port: 9096,
    sasl: { mechanism: "SCRAM-SHA-256", user: { name: "app-user", password: "userPassword" } },
    keystore: { content: require("fs").readFileSync(process.argv[4]), passphrase: "serverKeystorePassword" },
  });
}
kafka.start().then(() => console.log(JSON.stringify(told)));
