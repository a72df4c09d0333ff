package testcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

// Paths are the two programs of a cluster.
type Paths struct {
	Etcd          string
	KubeAPIServer string
}

const (
	etcdModule       = "go.etcd.io/etcd/server/v3"
	kubernetesModule = "k8s.io/kubernetes"
	assetsVariable   = "KUBEBUILDER_ASSETS"
)

// Binaries returns etcd and kube-apiserver. Where KUBEBUILDER_ASSETS is set, they are those in the folder it names.
// Else they are built, in the versions of test/cluster/go.mod, into the user's cache folder, once for all clones of the
// repository; of several processes one builds and the others wait. progress may be nil.
func Binaries(ctx context.Context, progress io.Writer) (Paths, error) {
	if dir, ok := os.LookupEnv(assetsVariable); ok && dir != "" {
		paths := pathsIn(dir)
		if err := paths.check(); err != nil {
			return Paths{}, fmt.Errorf("find the servers in %s: %w; put etcd and kube-apiserver there, or unset it to have them built", assetsVariable, err)
		}
		return paths, nil
	}
	if progress == nil {
		progress = io.Discard
	}
	module, err := findToolModule()
	if err != nil {
		return Paths{}, fmt.Errorf("find what to build the servers from: %w; set %s to use servers that are there", err, assetsVariable)
	}
	v, err := readVersions(module)
	if err != nil {
		return Paths{}, fmt.Errorf("read the servers' versions: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Paths{}, fmt.Errorf("find the user's cache folder: %w", err)
	}
	dir := filepath.Join(cache, "kbridge", "cluster", "k8s-"+v.kubernetes+"-etcd-"+v.etcd)
	paths := pathsIn(dir)
	if paths.check() == nil { // a file is there only when it is whole
		return paths, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Paths{}, fmt.Errorf("create the folder for the servers: %w", err)
	}
	lock, err := testserver.LockFile(ctx, filepath.Join(dir, "lock"), reportOther(progress))
	if err != nil {
		return Paths{}, fmt.Errorf("wait for another process to build the servers: %w", err)
	}
	defer lock.Release()
	if paths.check() == nil { // the other process has built them
		return paths, nil
	}
	b := builder{module: module, out: progress, note: lock.File}
	if err := b.build(ctx, paths, v); err != nil {
		return Paths{}, err
	}
	return paths, nil
}

func pathsIn(dir string) Paths {
	return Paths{Etcd: filepath.Join(dir, "etcd"), KubeAPIServer: filepath.Join(dir, "kube-apiserver")}
}

func (p Paths) check() error {
	return errors.Join(executable(p.Etcd), executable(p.KubeAPIServer))
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not a program", path)
	}
	return nil
}

// findToolModule looks for test/cluster/go.mod beside and above the working folder, which for a test is its package's.
func findToolModule() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		module := filepath.Join(dir, "test", "cluster")
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no test/cluster/go.mod in or above %s", wd)
		}
	}
}

type versions struct{ kubernetes, etcd string } // each with its leading v

func readVersions(module string) (versions, error) {
	path := filepath.Join(module, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		return versions{}, err
	}
	var v versions
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") {
			continue
		}
		switch fields[0] {
		case kubernetesModule:
			v.kubernetes = fields[1]
		case etcdModule:
			v.etcd = fields[1]
		}
	}
	if v.kubernetes == "" || v.etcd == "" {
		return versions{}, fmt.Errorf("%s does not require both %s and %s", path, kubernetesModule, etcdModule)
	}
	return v, nil
}

// reportOther passes on what the building process says, each of its messages once.
func reportOther(progress io.Writer) func(*os.File) {
	began := time.Now()
	var last string
	return func(f *os.File) {
		note := make([]byte, 4<<10)
		n, _ := f.ReadAt(note, 0)
		if said := strings.TrimSpace(string(note[:n])); said != last {
			last = said
			fmt.Fprintf(progress, "testcluster: waited %s for another process's build; it says: %s\n",
				time.Since(began).Round(time.Second), said)
		}
	}
}
