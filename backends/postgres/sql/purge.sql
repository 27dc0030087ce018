-- purge removes what is too old, at most p_limit of each, and sums up differences.
-- Rows that another worker is purging are left to it. It gives the number of jobs.
CREATE OR REPLACE FUNCTION rota.purge(p_queue text, p_limit integer) RETURNS integer LANGUAGE plpgsql
@plans@
AS $$
DECLARE
	q rota.queue;
	now bigint := rota.us();
	j rota.job;
	n integer := 0;
BEGIN
	SELECT * INTO q FROM rota.queue x WHERE x.name = p_queue;
	IF NOT FOUND THEN
		RETURN 0;
	END IF;
	FOR j IN SELECT * FROM rota.job x WHERE x.queue = q.id AND x.expires IS NOT NULL AND x.expires <= now
		ORDER BY x.expires LIMIT p_limit FOR UPDATE SKIP LOCKED
	LOOP
		n := n + 1;
		PERFORM rota.drop_job(j);
	END LOOP;
	DELETE FROM rota.event x WHERE x.ctid = ANY (ARRAY(SELECT y.ctid FROM rota.event y WHERE y.queue = q.id ORDER BY y.id LIMIT p_limit FOR UPDATE SKIP LOCKED))
		AND x.at <= now - q.event_ttl;
	DELETE FROM rota.dedup x WHERE x.ctid = ANY (ARRAY(SELECT y.ctid FROM rota.dedup y WHERE y.queue = q.id AND y.until IS NOT NULL AND y.until <= now
		ORDER BY y.until LIMIT p_limit FOR UPDATE SKIP LOCKED));
	DELETE FROM rota.record x WHERE x.ctid = ANY (ARRAY(SELECT y.ctid FROM rota.record y WHERE y.expires IS NOT NULL AND y.expires <= now
		ORDER BY y.expires LIMIT p_limit FOR UPDATE SKIP LOCKED));
	DELETE FROM rota.counter x WHERE x.ctid = ANY (ARRAY(SELECT y.ctid FROM rota.counter y WHERE y.expires IS NOT NULL AND y.expires <= now
		ORDER BY y.expires LIMIT p_limit FOR UPDATE SKIP LOCKED));
	PERFORM rota.sum_up(q.id, now, p_limit);
	RETURN n;
END $$;

-- sum_up makes one row of several differences, and forgets days that are too old.
CREATE OR REPLACE FUNCTION rota.sum_up(p_queue integer, now bigint, p_limit integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	today integer := now / 86400000000;
BEGIN
	WITH old AS (
		DELETE FROM rota.tally x WHERE x.ctid = ANY (ARRAY(SELECT y.ctid FROM rota.tally y WHERE y.queue = p_queue
			ORDER BY y.day LIMIT p_limit FOR UPDATE SKIP LOCKED))
		RETURNING x.*
	)
	INSERT INTO rota.tally SELECT p_queue, old.day, sum(completed), sum(failed), sum(dead), sum(cancelled) FROM old WHERE old.day > today - 90 GROUP BY old.day;
END $$;
