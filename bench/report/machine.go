package report

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is what figures were measured on.
type Machine struct {
	CPU    string
	Cores  int
	Memory string
	OS     string
	Go     string
}

// ThisMachine describes the machine. What it can not find out stays empty.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	m.CPU = field("/proc/cpuinfo", "model name")
	var kib int64
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d kB", &kib); err == nil {
		m.Memory = fmt.Sprintf("%d GiB", (kib+1<<19)>>20)
	}
	return m
}

// field returns the value of the first "name: value" in a file.
func field(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, found := strings.Cut(lines.Text(), ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// String is the machine in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores of %s, %s, %s, %s", m.Cores, m.CPU, m.Memory, m.OS, m.Go)
}
