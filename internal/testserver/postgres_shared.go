package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// SharedPostgresServer is a PostgreSQL that several tests use at the same time,
// and perhaps other programs too. Nobody may stop or reconfigure it.
type SharedPostgresServer struct{ postgresTarget }

var sharedPostgres struct {
	sync.Mutex
	server *SharedPostgresServer
	err    error
	proc   *postgresProcess // nil for a server that is not ours
}

// SharedPostgres returns the one PostgreSQL of this test process: the server that
// ROTA_TEST_POSTGRES (a postgres:// URL of a role that may create schemas) names,
// else one that is started by the first call and stopped by [Main], which the
// package's TestMain must call. Each test must keep to names of its own, such as
// [UniqueName] makes.
func SharedPostgres(t testing.TB) *SharedPostgresServer {
	t.Helper()
	if !mainRuns.Load() {
		t.Fatal("testserver.SharedPostgres needs a TestMain that calls testserver.Main")
	}
	sharedPostgres.Lock()
	defer sharedPostgres.Unlock()
	if sharedPostgres.server == nil && sharedPostgres.err == nil {
		sharedPostgres.server, sharedPostgres.err = openSharedPostgres()
	}
	if sharedPostgres.err != nil {
		t.Fatalf("testserver: shared PostgreSQL: %v", sharedPostgres.err)
	}
	return sharedPostgres.server
}

func openSharedPostgres() (*SharedPostgresServer, error) {
	if url := os.Getenv("ROTA_TEST_POSTGRES"); url != "" {
		return givenPostgres(url)
	}
	p, err := newPostgresProcess(config{})
	if err != nil {
		return nil, fmt.Errorf("%w\n(ROTA_TEST_POSTGRES can name a running server instead, by its postgres:// URL)", err)
	}
	sharedPostgres.proc = p
	return &SharedPostgresServer{p.postgresTarget}, nil
}

// givenPostgres checks that a server which is not ours answers.
func givenPostgres(url string) (*SharedPostgresServer, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("ROTA_TEST_POSTGRES: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("the server that ROTA_TEST_POSTGRES names does not answer: %w", err)
	}
	defer conn.Close(ctx)
	addr := fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
	return &SharedPostgresServer{postgresTarget{addr: addr, url: url}}, nil
}

// stopSharedPostgres ends what SharedPostgres started.
func stopSharedPostgres() error {
	sharedPostgres.Lock()
	defer sharedPostgres.Unlock()
	var errs []error
	if sharedPostgres.proc != nil {
		said := sharedPostgres.proc.log(0)
		if err := sharedPostgres.proc.close(); err != nil {
			errs = append(errs, fmt.Errorf("shared postgres: %w\n%s", err, said))
		}
	}
	sharedPostgres.server, sharedPostgres.proc = nil, nil
	return errors.Join(append(errs, removeClusters())...)
}
