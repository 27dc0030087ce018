-- The least that could publish jobs of groups, hand them out in turn and finish
-- them: insert, update of the group, delete, update of the group. No leases, no
-- attempts, no recovery.
DROP TABLE IF EXISTS limit_job, limit_group;
CREATE TABLE limit_job (
	id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	grp     integer NOT NULL,
	payload bytea NOT NULL
);
CREATE INDEX ON limit_job (grp, id);
CREATE TABLE limit_group (
	id  integer PRIMARY KEY,
	due bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX ON limit_group (due);
INSERT INTO limit_group SELECT g, g FROM generate_series(1, 1000) g;

CREATE OR REPLACE FUNCTION limit_work(n integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	groups integer[];
	jobs bigint[];
BEGIN
	WITH g AS MATERIALIZED (
		SELECT id FROM limit_group ORDER BY due LIMIT n FOR UPDATE SKIP LOCKED
	), claimed AS (
		UPDATE limit_group x SET due = x.due + 1000000 FROM g WHERE x.id = g.id RETURNING x.id
	)
	SELECT array_agg(id) INTO groups FROM claimed;
	INSERT INTO limit_job (grp, payload) SELECT g, decode(repeat('00', 64), 'hex') FROM unnest(groups) g;
	SELECT array_agg(j.id) INTO jobs FROM unnest(groups) g,
		LATERAL (SELECT id FROM limit_job j WHERE j.grp = g ORDER BY j.id LIMIT 1) j;
	DELETE FROM limit_job WHERE id = ANY (jobs);
	UPDATE limit_group SET due = (date_part('epoch', clock_timestamp()) * 1000000)::bigint WHERE id = ANY (groups);
END $$;
