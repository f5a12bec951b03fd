// Puts numbered records, however often the server is killed: node kinesis_put.js PORT STREAM COUNT.
const { KinesisClient, PutRecordsCommand } = require("@aws-sdk/client-kinesis");

const BATCH = 50;

async function main(port, stream, count) {
  const client = new KinesisClient({
    endpoint: `http://127.0.0.1:${port}`,
    region: "us-east-1",
    credentials: { accessKeyId: "a", secretAccessKey: "b" },
    maxAttempts: 60,
  });
  for (let first = 0; first < count; first += BATCH) {
    const records = [];
    for (let n = first; n < Math.min(count, first + BATCH); n++)
      records.push({ PartitionKey: "node", Data: Buffer.from(`node:${n}`) });
    const put = await client.send(new PutRecordsCommand({ StreamName: stream, Records: records }));
    if (put.FailedRecordCount) throw new Error(JSON.stringify(put));
  }
  client.destroy();
}

main(process.argv[2], process.argv[3], Number(process.argv[4])).catch((error) => {
  console.error(error);
  process.exit(1);
});
