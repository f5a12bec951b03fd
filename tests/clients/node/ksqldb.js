// Every call of the npm client against a running server: node ksqldb.js PORT. Prints one JSON object.
const KsqldbClient = require("ksqldb-client");

async function main(port) {
  const client = new KsqldbClient({ host: "http://127.0.0.1", port });
  await client.connect();
  const said = {};
  said.created = await client.executeStatement(
    "CREATE STREAM npm_views (userid VARCHAR KEY, pageid VARCHAR) WITH (KAFKA_TOPIC='npm_views', VALUE_FORMAT='JSON', PARTITIONS=1);",
  );
  const rows = [];
  const pushing = client.streamQuery("SELECT userid, pageid FROM npm_views EMIT CHANGES;", async (data) => {
    rows.push(...(data.rows || []));
    if (!rows.length && !said.inserted) {
      said.inserted = true;
      said.first = await client.insertInto("npm_views", { userid: "u1", pageid: "/a" });
      said.second = await client.insertInto("npm_views", { userid: "u2", pageid: "/b" });
    }
    if (rows.length === 2 && !said.closed) said.closed = await client.terminatePushQuery(data.metadata.queryId);
  });
  said.pushed = await pushing;
  said.rows = rows;
  said.pulled = await client.query("SELECT userid, pageid FROM npm_views;");
  said.streams = await client.listStreams();
  said.tables = await client.listTables();
  said.topics = await client.listTopics();
  said.queries = await client.listQueries();
  said.described = await client.describeSource("npm_views");
  said.wrong = await client.query("SELECT nothing FROM npm_views;");
  said.dropped = await client.executeStatement("DROP STREAM npm_views;");
  await client.disconnect();
  console.log(JSON.stringify(said));
}

main(Number(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
