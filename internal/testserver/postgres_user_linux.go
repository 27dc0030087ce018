package testserver

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// postgresUser is whom the server runs as when this process is root, which the
// server refuses; nil otherwise.
func postgresUser() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
}

// postgresAttr starts a process as the server's user that ends with this one. The
// postmaster ends its sessions at SIGQUIT.
func postgresAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: postgresUser(), Pdeathsig: syscall.SIGQUIT}
}

// givePostgres makes the server's user the owner of a folder.
func givePostgres(dir string) error {
	if u := postgresUser(); u != nil {
		return os.Chown(dir, int(u.Uid), int(u.Gid))
	}
	return nil
}
