package testcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kbridge-io/kbridge/internal/testbuild"
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
	module, err := testbuild.FindModule("cluster")
	if err != nil {
		return Paths{}, fmt.Errorf("find what to build the servers from: %w; set %s to use servers that are there", err, assetsVariable)
	}
	v, err := readVersions(module)
	if err != nil {
		return Paths{}, fmt.Errorf("read the servers' versions: %w", err)
	}
	dir, err := testbuild.CacheDir("cluster", "k8s-"+v.kubernetes+"-etcd-"+v.etcd)
	if err != nil {
		return Paths{}, err
	}
	servers := testbuild.Set{
		Module: module, Dir: dir,
		Programs: []testbuild.Program{
			{Name: "etcd", Package: etcdModule},
			{Name: "kube-apiserver", Package: kubernetesModule + "/cmd/kube-apiserver", LDFlags: VersionFlags(v.kubernetes)},
		},
		Why: "etcd " + v.etcd + " and kube-apiserver " + v.kubernetes + ", because tests run against a real API server. " +
			"This happens once for this user: about 11 minutes on two cores, a few GB for Go's build cache",
	}
	if err := servers.Build(ctx, progress); err != nil {
		return Paths{}, err
	}
	return pathsIn(dir), nil
}

func pathsIn(dir string) Paths {
	return Paths{Etcd: filepath.Join(dir, "etcd"), KubeAPIServer: filepath.Join(dir, "kube-apiserver")}
}

func (p Paths) check() error {
	return errors.Join(testbuild.Executable(p.Etcd), testbuild.Executable(p.KubeAPIServer))
}

// VersionFlags makes a program of Kubernetes tell its version: without, it says v0.0.0-master, which kubectl and helm do
// not parse.
func VersionFlags(version string) string {
	const pkg = "k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return "-s -w -X " + pkg + "gitVersion=" + version + " -X " + pkg + "gitMajor=" + major + " -X " + pkg + "gitMinor=" + minor
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
