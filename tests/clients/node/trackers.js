// Segment's and Snowplow's Node clients, sending numbered events: node trackers.js PORT COUNT.
const { Analytics } = require("@segment/analytics-node");
const { newTracker, buildStructEvent } = require("@snowplow/node-tracker");
const { newInMemoryEventStore } = require("@snowplow/tracker-core");

const [port, count] = process.argv.slice(2).map(Number);
const host = `http://127.0.0.1:${port}`;
const PATIENCE_MS = 240_000;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function segment() {
  const analytics = new Analytics({ writeKey: "w2", host, flushAt: 20, flushInterval: 50, maxRetries: 1000 });
  let lost = null;
  analytics.on("error", (error) => (lost = error));
  for (let n = 0; n < count; n++) {
    analytics.track({ userId: "bob", event: "Counted", properties: { n } });
    await pause(10);
  }
  await analytics.closeAndFlush({ timeout: PATIENCE_MS });
  if (lost) throw new Error(`segment: ${lost.code} ${lost.reason}`);
}

async function snowplow() {
  const eventStore = newInMemoryEventStore({});
  const tracker = newTracker({ namespace: "node", appId: "count" }, { endpoint: host, bufferSize: 20, eventStore });
  for (let n = 0; n < count; n++) {
    tracker.track(buildStructEvent({ category: "count", action: "up", value: n }));
    await pause(10);
  }
  // What could not be sent waits for the next flush.
  for (const deadline = Date.now() + PATIENCE_MS; (await eventStore.count()) > 0; await pause(100)) {
    if (Date.now() > deadline) throw new Error("snowplow: nobody took it");
    tracker.flush();
  }
}

Promise.all([segment(), snowplow()]).catch((error) => {
  console.error(error);
  process.exit(1);
});
