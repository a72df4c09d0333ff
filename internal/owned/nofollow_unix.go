//go:build unix

package owned

import "syscall"

// noFollow lets an open fail where the name is that of a symbolic link.
const noFollow = syscall.O_NOFOLLOW
