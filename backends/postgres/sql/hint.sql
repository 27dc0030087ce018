-- nudge wakes the workers of the queues in which one had nothing to do lately, and
-- of those in p_first, which were just made. p_told are finished messages.
CREATE OR REPLACE FUNCTION rota.nudge(p_queues text[], p_first text[], p_told text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	m text;
BEGIN
	FOR m IN
		SELECT 'r' || q.name || chr(10) FROM rota.queue q WHERE q.name = ANY (p_queues) AND q.idle_until > rota.us() AND q.name <> ALL (p_first)
		UNION ALL SELECT 'r' || x || chr(10) FROM unnest(p_first) x
		UNION ALL SELECT x FROM unnest(p_told) x
	LOOP
		PERFORM pg_notify('@channel@', m);
	END LOOP;
END $$;
