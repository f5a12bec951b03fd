-- Page views as they happen. Send one:
--   curl -d '{"userid":"you","pageid":"/hello"}' http://127.0.0.1:8080/v1/topics/pageviews/events
CREATE STREAM pageviews (userid VARCHAR KEY, pageid VARCHAR, viewtime TIMESTAMP)
  WITH (KAFKA_TOPIC='pageviews', VALUE_FORMAT='JSON', TIMESTAMP='viewtime', PARTITIONS=2);

-- How often each page was ever seen. Ask:
--   headrace sql -e "SELECT pageid, views FROM views_by_page ORDER BY views DESC LIMIT 5;"
CREATE TABLE views_by_page AS
  SELECT pageid, COUNT(*) AS views
  FROM pageviews
  GROUP BY pageid;

-- The same minute by minute. A view that arrives more than 10 seconds after its minute is not counted, but kept aside.
CREATE TABLE views_per_minute AS
  SELECT pageid, COUNT(*) AS views, COUNT_DISTINCT(userid) AS visitors
  FROM pageviews WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS)
  GROUP BY pageid;
