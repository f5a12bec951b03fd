CREATE STREAM pageviews (viewtime BIGINT,  
userid VARCHAR, pageid VARCHAR) WITH  
(KAFKA_TOPIC='pageviews_topic',  
VALUE_FORMAT='JSON');

CREATE TABLE users (  
  registertime BIGINT,  
  gender VARCHAR,  
  regionid VARCHAR,  
  userid VARCHAR,  
  address STRUCT<street VARCHAR, zip INTEGER>  
) WITH (  
  KAFKA_TOPIC='user_topic',  
  VALUE_FORMAT='JSON',  
  KEY='userid'  
);

CREATE STREAM enrichedpageviews AS  
SELECT * FROM pageviews LEFT JOIN  
users ON pageviews.userid = users.userid  
WHERE regionid = 'region 10';

CREATE TABLE userviewcount AS  
SELECT userid, count(*)  
FROM pageviews  
WINDOW TUMBLING (SIZE 1 HOUR)  
GROUP BY userid;
