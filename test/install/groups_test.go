//go:build install && linux

package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// groups are the folders of the node's control groups: one a hierarchy (cgroup v1), or one in all (v2).
type groups []string

const (
	groupRoot   = "/sys/fs/cgroup"
	groupPrefix = "kbridge-node-"
)

// unified says that there is cgroup v2 only.
func unified() bool {
	_, err := os.Stat(filepath.Join(groupRoot, "cgroup.controllers"))
	return err == nil
}

// parents are the folders of the groups that this process is in.
func parents() ([]string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if unified() && parts[1] == "" {
			return []string{filepath.Join(groupRoot, parts[2])}, nil
		}
		if parts[1] == "" {
			continue
		}
		dir := filepath.Join(groupRoot, strings.TrimPrefix(parts[1], "name="), parts[2])
		if _, err := os.Stat(dir); err == nil {
			list = append(list, dir)
		}
	}
	return list, nil
}

// makeGroups makes the node's groups, and removes those that a killed test has left.
func makeGroups() (groups, error) {
	dirs, err := parents()
	if err != nil {
		return nil, fmt.Errorf("find the control groups: %w", err)
	}
	var made groups
	for _, parent := range dirs {
		old, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*")) // the pattern is well-formed
		for _, dir := range old {
			if pid, err := strconv.Atoi(filepath.Base(dir)[len(groupPrefix):]); err == nil && syscall.Kill(pid, 0) != nil {
				_ = removeGroup(dir) // what is still in use is somebody else's
			}
		}
		dir := filepath.Join(parent, groupPrefix+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return made, fmt.Errorf("make control groups: %w", errors.Join(err, made.remove()))
		}
		made = append(made, dir)
		// A new group of cgroup v1 has no processors and no memory until it is given some.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if data, err := os.ReadFile(filepath.Join(dir, file)); err != nil || strings.TrimSpace(string(data)) != "" {
				continue
			}
			data, err := os.ReadFile(filepath.Join(parent, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), data, 0o644)
			}
			if err != nil {
				return made, fmt.Errorf("make control groups: %w", errors.Join(err, made.remove()))
			}
		}
	}
	return made, nil
}

// enter moves this process into the groups.
func (g groups) enter() error {
	for _, dir := range g {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return fmt.Errorf("enter control group: %w", err)
		}
	}
	return nil
}

func (g groups) remove() error {
	var errs []error
	for _, dir := range g {
		errs = append(errs, removeGroup(dir))
	}
	return errors.Join(errs...)
}

// removeGroup removes a group and those in it. One whose last process has just ended may need a moment.
func removeGroup(dir string) error {
	var err error
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var dirs []string
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // it may be on its way out
		})
		for _, d := range slices.Backward(dirs) {
			err = syscall.Rmdir(d)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return fmt.Errorf("remove control group %s: %w", dir, err)
}
