package rotapostgres

import (
	"net/url"
	"testing"

	"github.com/rota-queue/rota/core"
)

// What docs/postgres.md tells to grant is enough for a worker, also where functions are not
// everybody's by default, and after an upgrade, which makes the functions anew.
func TestRightsOfAWorker(t *testing.T) {
	t.Parallel()
	owner, worker := role(t)
	conn := connect(t, owner)
	exec := func(sql string) {
		t.Helper()
		_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
		check(t, err)
	}
	exec("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
	name := userOf(t, worker)
	open(t, owner, Options{})
	exec("GRANT USAGE ON SCHEMA rota TO " + name + "; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rota TO " + name +
		"; GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA rota TO " + name)
	wantWorks(t, open(t, worker, Options{Migrate: MigrateCheck}))
	exec("UPDATE rota.meta SET functions = 'of before'")
	wantOpen(t, worker, core.ErrMisconfigured, "must be owner") // it may not upgrade
	open(t, owner, Options{})
	wantWorks(t, open(t, worker, Options{Migrate: MigrateCheck}))
}

// To install into a schema that is there, a role needs a right on that, and none on the database.
func TestInstallIntoASchema(t *testing.T) {
	t.Parallel()
	owner, other := role(t)
	_, err := connect(t, owner).Exec(t.Context(), "CREATE SCHEMA mine AUTHORIZATION "+userOf(t, other))
	check(t, err)
	wantOpen(t, other, core.ErrMisconfigured, "on the schema where that is there")
	wantWorks(t, open(t, other, Options{Schema: "mine"}))
}

func userOf(t testing.TB, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	check(t, err)
	return u.User.Username()
}
