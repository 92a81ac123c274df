CREATE MATERIALIZED VIEW page_views AS
SELECT page, date_trunc('MINUTE', at) AS minute, count(*) AS views
FROM visits
GROUP BY ALL;
