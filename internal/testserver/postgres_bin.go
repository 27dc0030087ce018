package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// debianPostgres is where Debian has the programs of each version.
const debianPostgres = "/usr/lib/postgresql"

// postgresBin finds the folder of the server's programs: the one that
// ROTA_POSTGRES_BIN names, else the first that has all of them of those on the PATH
// and those of Debian's, the newest first. more are programs beside those that
// every server needs.
func postgresBin(more ...string) (string, error) {
	needed := append([]string{"postgres", "initdb"}, more...)
	if named := os.Getenv("ROTA_POSTGRES_BIN"); named != "" {
		if lacking := lackingPrograms(named, needed); lacking != nil {
			return "", fmt.Errorf("the folder that ROTA_POSTGRES_BIN names, %s, lacks %s", named, strings.Join(lacking, ", "))
		}
		return filepath.Abs(named)
	}
	var folders []string
	if path, err := exec.LookPath("postgres"); err == nil {
		folders = append(folders, filepath.Dir(path))
		// The program alone may be linked to a folder that is on the PATH.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(real))
		}
	}
	found, _ := filepath.Glob(debianPostgres + "/*/bin")
	slices.SortFunc(found, func(a, b string) int { return major(b) - major(a) })
	for _, folder := range append(folders, found...) {
		if lackingPrograms(folder, needed) == nil {
			return filepath.Abs(folder)
		}
	}
	return "", errors.New("no " + strings.Join(needed, ", ") + " in one folder of the PATH or of " + debianPostgres +
		": install PostgreSQL (apt-get install postgresql) or name its folder in ROTA_POSTGRES_BIN")
}

// lackingPrograms lists what a folder does not have.
func lackingPrograms(folder string, needed []string) (lacking []string) {
	for _, name := range needed {
		if _, err := exec.LookPath(filepath.Join(folder, name)); err != nil {
			lacking = append(lacking, name)
		}
	}
	return lacking
}

// major is the version in a folder of Debian's.
func major(folder string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
	return n
}
