package owned

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Holder is the process that has a lock on the file, by flock, and zero where none has, or
// where it is not known: one of another container is not. It takes no lock to find out.
func Holder(path string) (pid int) {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	return holder(locks, info)
}

// holder finds the one of the locks that is on the file.
func holder(locks []byte, info os.FileInfo) (pid int) {
	stat := info.Sys().(*syscall.Stat_t)
	inode := strconv.FormatUint(stat.Ino, 10)
	for lines := bufio.NewScanner(bytes.NewReader(locks)); lines.Scan(); {
		// number: FLOCK ADVISORY WRITE pid major:minor:inode start end; one that waits has an
		// arrow behind its number. The device is that of the file system, which the file's own
		// may differ from (btrfs, overlays).
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" {
			continue
		}
		if _, file, _ := strings.Cut(f[5], ":"); !strings.HasSuffix(file, ":"+inode) {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 && opens(pid, info) {
			return pid
		}
	}
	return 0
}

// opens says that the process has the file open: inodes of different file systems have the
// same numbers. Of a process of another user that is not to be seen.
func opens(pid int, info os.FileInfo) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if open, err := os.Stat(dir + "/" + e.Name()); err == nil && os.SameFile(open, info) {
			return true
		}
	}
	return false
}
