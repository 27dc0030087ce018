package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// postgresDir makes a folder that the server's user may enter.
func postgresDir() (string, error) {
	dir, err := os.MkdirTemp("", "rota-test-postgres-")
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.Chmod(dir, 0o755), givePostgres(dir)); err != nil {
		_ = os.RemoveAll(dir)
		return "", err
	}
	return dir, nil
}

// clusters has the data folder that each version's servers begin with: making one
// takes a second, copying it a tenth of that.
var clusters struct {
	sync.Mutex
	dirs map[string]string
}

// copyCluster makes a data folder.
func copyCluster(bin, data string) error {
	clusters.Lock()
	defer clusters.Unlock()
	dir, ok := clusters.dirs[bin]
	if !ok {
		var err error
		if dir, err = postgresDir(); err != nil {
			return err
		}
		cmd := exec.Command(filepath.Join(bin, "initdb"), "-D", filepath.Join(dir, "data"), "-A", "trust", "-U", "postgres", "--no-sync", "--no-locale", "-E", "UTF8")
		cmd.Dir = dir
		if out, err := runAs(cmd); err != nil {
			_ = os.RemoveAll(dir)
			return fmt.Errorf("initdb: %w\n%s", err, out)
		}
		if clusters.dirs == nil {
			clusters.dirs = map[string]string{}
		}
		clusters.dirs[bin] = dir
	}
	cmd := exec.Command("cp", "-a", filepath.Join(dir, "data"), data)
	if out, err := runAs(cmd); err != nil {
		return fmt.Errorf("copying a data folder: %w\n%s", err, out)
	}
	return nil
}

// runAs runs a program as the server's user.
func runAs(cmd *exec.Cmd) ([]byte, error) {
	cmd.SysProcAttr = postgresAttr()
	return cmd.CombinedOutput()
}

// removeClusters removes what copyCluster copies from.
func removeClusters() error {
	clusters.Lock()
	defer clusters.Unlock()
	var errs []error
	for _, dir := range clusters.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	clusters.dirs = nil
	return errors.Join(errs...)
}
