//go:build install && linux

package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// nodeIP is the node's address on the pods' bridge.
const nodeIP = "10.244.0.1"

// first is the first process of the namespaces. It makes a machine of them, runs the tests, and reaps what they leave.
func first() (int, error) {
	if err := makeMachine(os.Getenv(dirVariable)); err != nil {
		return 1, fmt.Errorf("make the node's machine: %w", err)
	}
	if err := os.Setenv(stageVariable, "tests"); err != nil {
		return 1, err
	}
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return 1, fmt.Errorf("start the tests: %w", err)
	}
	for {
		var status syscall.WaitStatus
		switch dead, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return 1, fmt.Errorf("wait for the tests: %w", err)
		case dead == pid && status.Signaled():
			return 1, fmt.Errorf("the tests ended with %s", status.Signal())
		case dead == pid:
			return status.ExitStatus(), nil
		}
	}
}

func makeMachine(dir string) error {
	for _, step := range []func() error{
		func() error { return syscall.Sethostname([]byte("kbridge-node")) },
		func() error { return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") },
		mountGroups,
		func() error { return mountFolders(dir) },
		func() error { return hideSysctls(dir) },
		func() error { return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "") },
		makeNetwork,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind, options string) error {
	if err := syscall.Mount(source, target, kind, 0, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, target, err)
	}
	return nil
}

// mountGroups mounts /proc and /sys as they are in here, with the control groups.
func mountGroups() error {
	v2 := unified()
	if err := mount("proc", "/proc", "proc", ""); err != nil {
		return err
	}
	mine, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	if err := mount("sysfs", "/sys", "sysfs", ""); err != nil {
		return err
	}
	if v2 {
		return mountUnified()
	}
	if err := mount("tmpfs", groupRoot, "tmpfs", "mode=755,size=1m"); err != nil {
		return err
	}
	for line := range strings.Lines(string(mine)) {
		controllers := strings.SplitN(line, ":", 3)[1]
		if controllers == "" {
			continue
		}
		name, named := strings.CutPrefix(controllers, "name=")
		dir, options := filepath.Join(groupRoot, name), controllers
		if named {
			options = "none," + controllers
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := mount("cgroup", dir, "cgroup", options); err != nil {
			return err
		}
	}
	return nil
}

// mountUnified mounts cgroup v2. The root of a tree that hands controllers on has no processes of its own.
func mountUnified() error {
	if err := mount("cgroup2", groupRoot, "cgroup2", ""); err != nil {
		return err
	}
	init := filepath.Join(groupRoot, "init")
	if err := os.Mkdir(init, 0o755); err != nil {
		return err
	}
	processes, err := os.ReadFile(filepath.Join(groupRoot, "cgroup.procs"))
	if err != nil {
		return err
	}
	for pid := range strings.FieldsSeq(string(processes)) {
		if err := os.WriteFile(filepath.Join(init, "cgroup.procs"), []byte(pid), 0o644); err != nil && pid != "0" { // 0: of another namespace
			return err
		}
	}
	controllers, err := os.ReadFile(filepath.Join(groupRoot, "cgroup.controllers"))
	if err != nil {
		return err
	}
	enable := "+" + strings.Join(strings.Fields(string(controllers)), " +")
	return os.WriteFile(filepath.Join(groupRoot, "cgroup.subtree_control"), []byte(enable), 0o644)
}

// mountFolders gives the node folders of its own in the usual places.
func mountFolders(dir string) error {
	for _, target := range []string{"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log", "/etc/cni"} {
		source := filepath.Join(dir, target)
		for _, d := range []string{source, target} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return mount("tmpfs", "/run", "tmpfs", "mode=755")
}

// hideSysctls keeps kubelet, which wants other values in some of the kernel's settings, from writing them: they are the
// whole machine's. It finds files that have what it wants.
func hideSysctls(dir string) error {
	for setting, wanted := range map[string]string{"kernel/panic": "10", "kernel/panic_on_oops": "1", "vm/overcommit_memory": "1"} {
		file := filepath.Join(dir, strings.ReplaceAll(setting, "/", "."))
		if err := os.WriteFile(file, []byte(wanted+"\n"), 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(file, filepath.Join("/proc/sys", setting), "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide %s: %w", setting, err)
		}
	}
	return nil
}

// makeNetwork makes the pods' bridge. Without the route this machine itself finds no way to the addresses of Services.
func makeNetwork() error {
	for _, command := range []string{
		"ip link set lo up",
		"ip link add cni0 type bridge",
		"ip addr add " + nodeIP + "/24 dev cni0",
		"ip link set cni0 up",
		"ip route add default dev cni0",
	} {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
	}
	// The module of the bridge's filter may not be there: Services then work all the same from the node.
	_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0o644)
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}
