-- Remove all functions, which the next statements define anew.
DO $do$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = '@schema@' LOOP
		EXECUTE 'DROP FUNCTION ' || f::text || ' CASCADE';
	END LOOP;
END $do$;
