//go:build unix && !linux

package process

import (
	"errors"
	"time"
)

var errLinux = errors.New("what another process uses is read as Linux tells it, and on no other system")

// CPU is what a process has used.
func CPU(int) (time.Duration, error) { return 0, errLinux }

func rssAnon(int) (int64, error) { return 0, errLinux }
