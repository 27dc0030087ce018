package testserver

import "os"

// LaunchedRedis is a private Redis of a program that is no test.
type LaunchedRedis struct {
	*redisProcess
	dir string
}

// LaunchRedis starts a private Redis with its files in a temporary folder. The
// caller must Close it; it dies with the process in any case.
func LaunchRedis(opts ...Option) (*LaunchedRedis, error) {
	dir, err := os.MkdirTemp("", "rota-redis-")
	if err != nil {
		return nil, err
	}
	p, err := newRedisProcess(dir, newConfig(opts), 0)
	if err != nil {
		_ = os.RemoveAll(dir) // the error to tell is the server's
		return nil, err
	}
	return &LaunchedRedis{p, dir}, nil
}

// Close ends the server and removes its folder.
func (s *LaunchedRedis) Close() error {
	err := s.close()
	if rmErr := os.RemoveAll(s.dir); err == nil {
		err = rmErr
	}
	return err
}
