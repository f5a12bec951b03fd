-- The decks select an `age` that their enriched views do not have: here they do.
CREATE STREAM pageviews_enriched (userid VARCHAR, age INTEGER)
  WITH (KAFKA_TOPIC='enriched', VALUE_FORMAT='JSON', KEY='userid');

CREATE STREAM visitors WITH (kafka_topic=visitors, value_format='delimited')  
AS SELECT age FROM pageviews_enriched;
