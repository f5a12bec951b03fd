// AWS's own client against a running server, over cleartext HTTP/2: node kinesis.js PORT KEY SECRET. Prints one JSON object.
const {
  KinesisClient,
  CreateStreamCommand,
  DescribeStreamSummaryCommand,
  PutRecordsCommand,
  PutRecordCommand,
  ListShardsCommand,
  GetShardIteratorCommand,
  GetRecordsCommand,
  DeleteStreamCommand,
} = require("@aws-sdk/client-kinesis");

async function readShard(client, stream, shard) {
  const start = { StreamName: stream, ShardId: shard, ShardIteratorType: "TRIM_HORIZON" };
  let { ShardIterator: iterator } = await client.send(new GetShardIteratorCommand(start));
  const found = [];
  for (;;) {
    const page = await client.send(new GetRecordsCommand({ ShardIterator: iterator, Limit: 100 }));
    for (const record of page.Records) {
      if (!(record.ApproximateArrivalTimestamp instanceof Date)) throw new Error("no arrival time");
      found.push([record.PartitionKey, Buffer.from(record.Data).toString()]);
    }
    if (!page.Records.length) return found;
    iterator = page.NextShardIterator;
  }
}

async function main(port, accessKeyId, secretAccessKey) {
  const client = new KinesisClient({
    endpoint: `http://127.0.0.1:${port}`,
    region: "us-east-1",
    credentials: { accessKeyId, secretAccessKey },
    maxAttempts: 10,
  });
  const stream = "from-node";
  const said = {};
  await client.send(new CreateStreamCommand({ StreamName: stream, ShardCount: 2 }));
  const summary = await client.send(new DescribeStreamSummaryCommand({ StreamName: stream }));
  said.status = summary.StreamDescriptionSummary.StreamStatus;
  const records = [];
  for (let n = 0; n < 300; n++) records.push({ PartitionKey: `user ${n % 11}`, Data: Buffer.from(`click ${n}`) });
  const put = await client.send(new PutRecordsCommand({ StreamName: stream, Records: records }));
  said.failed = put.FailedRecordCount;
  await client.send(new PutRecordCommand({ StreamName: stream, PartitionKey: "one", Data: Buffer.from("more") }));
  const { Shards: shards } = await client.send(new ListShardsCommand({ StreamName: stream }));
  said.records = (await Promise.all(shards.map((shard) => readShard(client, stream, shard.ShardId)))).flat();
  await client.send(new DeleteStreamCommand({ StreamName: stream }));
  try {
    await client.send(new DescribeStreamSummaryCommand({ StreamName: stream }));
  } catch (error) {
    said.error = error.name;
  }
  said.protocol = client.config.requestHandler.metadata.handlerProtocol;
  client.destroy();
  console.log(JSON.stringify(said));
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
