-- us is the store's clock. It never steps behind the last number that take has
-- given: what was due stays due when the server's clock is set back, or a standby
-- is promoted whose clock is behind. Time then stands still until that has caught
-- up.
CREATE OR REPLACE FUNCTION rota.us() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT greatest((date_part('epoch', clock_timestamp()) * 1000000)::bigint, pg_sequence_last_value('rota.ticks'::regclass)) $$;

-- take gives n numbers in a row, the first of which is returned: the clock, or
-- behind the last number ever given. The lock is held for the evaluation of one
-- expression, in which nothing waits; it is a lock of the session because one of
-- the transaction would make all publishers wait for each other's commit. The
-- nextval before it takes the lock on the sequence itself, and whoever calls has a
-- transaction id, so nothing in the expression can fail or be cancelled between the
-- lock and its release, and no state of the session outlives the statement.
--
-- Nobody waits for the lock: a session that is cancelled just as it is given a lock it has
-- waited for keeps that, beyond the end of its transaction.
CREATE OR REPLACE FUNCTION rota.take(n integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	k integer := 'rota.ticks'::regclass::oid::integer;
	first bigint;
BEGIN
	first := nextval('rota.ticks');
	FOR try IN 1..2147483647 LOOP
		first := CASE WHEN pg_try_advisory_lock(1919906913, k) THEN
			setval('rota.ticks', greatest(nextval('rota.ticks'), (date_part('epoch', clock_timestamp()) * 1000000)::bigint) + n - 1)
			- n + 1 + (CASE WHEN pg_advisory_unlock(1919906913, k) THEN 0 ELSE 0 END) END;
		EXIT WHEN first IS NOT NULL;
		PERFORM rota.retry_lock(try);
	END LOOP;
	RETURN first;
END $$;

-- retry_lock passes the time until the next try. Locks are held for microseconds, or until a
-- holder that has lost its processor has it again.
CREATE OR REPLACE FUNCTION rota.retry_lock(try integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF try % 100 = 0 THEN
		PERFORM pg_sleep(0.001);
	END IF;
END $$;

-- rewound says that this transaction is about to write a due time of the past,
-- so that no claim trusts a lower bound it found before; see claim_bounds. The
-- transaction gets its id first: that is what claims look for.
CREATE OR REPLACE FUNCTION rota.rewound() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	k integer := 'rota.rewind'::regclass::oid::integer;
	last bigint;
BEGIN
	PERFORM pg_current_xact_id();
	last := nextval('rota.rewind');
	FOR try IN 1..2147483647 LOOP -- as in take
		last := CASE WHEN pg_try_advisory_lock(1919906913, k) THEN
			setval('rota.rewind', greatest(nextval('rota.rewind'), rota.us()))
			+ (CASE WHEN pg_advisory_unlock(1919906913, k) THEN 0 ELSE 0 END) END;
		EXIT WHEN last IS NOT NULL;
		PERFORM rota.retry_lock(try);
	END LOOP;
END $$;
