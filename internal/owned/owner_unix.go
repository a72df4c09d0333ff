//go:build unix

package owned

import (
	"io/fs"
	"os"
	"syscall"
)

// others says that somebody else than this process's user and root owns the file.
func others(info fs.FileInfo) bool {
	uid := info.Sys().(*syscall.Stat_t).Uid
	return uid != 0 && uid != uint32(os.Geteuid())
}
