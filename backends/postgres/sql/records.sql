-- Records with expiry, and counters.

-- put_record gives the new version, or 0 when the condition (0 none, 1 absent, 2
-- of a version) does not hold.
CREATE OR REPLACE FUNCTION rota.put_record(p_space text, p_key text, p_value bytea, p_ttl bigint, p_when integer, p_version bigint,
	OUT o_version bigint, OUT o_expires bigint) LANGUAGE plpgsql AS $$
DECLARE
	now bigint := rota.us();
BEGIN
	IF p_ttl > 0 THEN
		o_expires := now + p_ttl;
	END IF;
	IF p_when = 2 THEN
		UPDATE rota.record r SET value = p_value, version = greatest(r.version + 1, now), expires = o_expires
		WHERE r.space = p_space AND r.key = p_key AND r.version = p_version AND (r.expires IS NULL OR r.expires > now)
		RETURNING r.version INTO o_version;
	ELSE
		INSERT INTO rota.record AS r (space, key, value, version, expires) VALUES (p_space, p_key, p_value, now, o_expires)
		ON CONFLICT (space, key) DO UPDATE SET value = excluded.value, version = greatest(r.version + 1, excluded.version), expires = excluded.expires
		WHERE p_when = 0 OR r.expires <= rota.us()
		RETURNING r.version INTO o_version;
	END IF;
	o_version := coalesce(o_version, 0);
END $$;

-- delete_record gives 0 done, 1 no such record, 2 another version.
CREATE OR REPLACE FUNCTION rota.delete_record(p_space text, p_key text, p_version bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
	r rota.record;
BEGIN
	SELECT * INTO r FROM rota.record x WHERE x.space = p_space AND x.key = p_key AND (x.expires IS NULL OR x.expires > rota.us()) FOR UPDATE;
	IF NOT FOUND THEN
		RETURN 1;
	ELSIF p_version <> 0 AND p_version <> r.version THEN
		RETURN 2;
	END IF;
	DELETE FROM rota.record x WHERE x.space = p_space AND x.key = p_key;
	RETURN 0;
END $$;

CREATE OR REPLACE FUNCTION rota.increment(p_space text, p_key text, p_delta bigint, p_ttl bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	now bigint := rota.us();
	sum bigint;
BEGIN
	INSERT INTO rota.counter AS c (space, key, value, expires) VALUES (p_space, p_key, p_delta, CASE WHEN p_ttl > 0 THEN now + p_ttl END)
	ON CONFLICT (space, key) DO UPDATE SET
		value = CASE WHEN c.expires <= now THEN 0 ELSE c.value END + p_delta,
		expires = CASE WHEN p_ttl > 0 THEN now + p_ttl WHEN c.expires <= now THEN NULL ELSE c.expires END
	RETURNING c.value INTO sum;
	RETURN sum;
END $$;
