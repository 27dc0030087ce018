package testserver

// LaunchedPostgres is a private PostgreSQL of a program that is no test.
type LaunchedPostgres struct {
	*postgresProcess
}

// LaunchPostgres starts a private PostgreSQL with its files in a temporary folder.
// The caller must Close it; it dies with the process in any case.
func LaunchPostgres(opts ...Option) (*LaunchedPostgres, error) {
	p, err := newPostgresProcess(newConfig(opts))
	if err != nil {
		return nil, err
	}
	return &LaunchedPostgres{p}, nil
}

// Programs is the folder of the server's programs, such as pgbench.
func (s *LaunchedPostgres) Programs() string { return s.bin }

// Close ends the server and removes its folder.
func (s *LaunchedPostgres) Close() error { return s.close() }
