-- Every view of a page, as the website's servers send them (generator.py plays the website).
CREATE STREAM pageviews (
    userid VARCHAR KEY,
    pageid VARCHAR,
    referrer VARCHAR,
    sessionid VARCHAR,
    country VARCHAR,
    device VARCHAR,
    viewtime TIMESTAMP
  )
  WITH (KAFKA_TOPIC='pageviews', VALUE_FORMAT='JSON', TIMESTAMP='viewtime', PARTITIONS=2);

-- Traffic, minute by minute. Views that arrive more than 10 seconds after their minute go to the late ledger.
CREATE TABLE views_per_minute AS
  SELECT pageid, COUNT(*) AS views, COUNT_DISTINCT(userid) AS visitors
  FROM pageviews WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 SECONDS)
  GROUP BY pageid;

-- How often each page was ever seen.
CREATE TABLE views_by_page AS
  SELECT pageid, COUNT(*) AS views
  FROM pageviews
  GROUP BY pageid;

-- Who is here: different people in the last five minutes, by device, moving on every minute.
CREATE TABLE active_users AS
  SELECT device, COUNT_DISTINCT(userid) AS users, COUNT(*) AS views
  FROM pageviews WINDOW HOPPING (SIZE 5 MINUTES, ADVANCE BY 1 MINUTE, GRACE PERIOD 10 SECONDS)
  GROUP BY device;
