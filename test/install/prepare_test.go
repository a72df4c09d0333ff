//go:build install && linux

package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kbridge-io/kbridge/internal/testbuild"
	"github.com/kbridge-io/kbridge/internal/testcluster"
	"github.com/kbridge-io/kbridge/internal/testhelm"
	"github.com/kbridge-io/kbridge/internal/testserver"
)

// chart is the chart's folder, and source the repository.
const (
	chart  = "../../deploy/helm/kbridge"
	source = "../.."
)

// made is where everything is that the node is made of. The later stages read it from the environment.
type made struct {
	etcd, apiserver, kube, helm string
	images                      string // a folder of OCI archives
	kbridge                     string // the image's name, as the chart without values has it
}

var madeVariables = []string{"ETCD", "APISERVER", "KUBE", "HELM", "IMAGES", "KBRIDGE"}

func (m *made) fields() []*string {
	return []*string{&m.etcd, &m.apiserver, &m.kube, &m.helm, &m.images, &m.kbridge}
}

func (m *made) environment() []string {
	var env []string
	for i, field := range m.fields() {
		env = append(env, "KBRIDGE_INSTALL_"+madeVariables[i]+"="+*field)
	}
	return env
}

func madeFromEnvironment() made {
	var m made
	for i, field := range m.fields() {
		*field = os.Getenv("KBRIDGE_INSTALL_" + madeVariables[i])
	}
	return m
}

// packages are those of Debian that a node needs, and what builds images without a daemon.
var packages = []string{
	"buildah", "busybox-static", "ca-certificates", "containerd", "runc", "containernetworking-plugins", "conntrack",
	"iproute2", "iptables", "nftables",
}

// prepare installs and builds what is missing. What belongs to this run alone goes into dir.
func prepare(dir string) (made, error) {
	ctx := context.Background()
	if err := installPackages(); err != nil {
		return made{}, err
	}
	servers, err := testcluster.Binaries(ctx, os.Stderr)
	if err != nil {
		return made{}, err
	}
	m := made{etcd: servers.Etcd, apiserver: servers.KubeAPIServer}
	if m.helm, err = testhelm.Path(ctx, os.Stderr); err != nil {
		return made{}, err
	}
	programs, err := nodePrograms(ctx)
	if err != nil {
		return made{}, err
	}
	m.kube = programs.Path("kube")
	m.images = filepath.Join(dir, "images")
	if err := os.MkdirAll(m.images, 0o755); err != nil {
		return made{}, err
	}
	if m.kbridge, err = chartImage(); err != nil {
		return made{}, err
	}
	return m, m.buildImages(ctx, programs)
}

// buildImages builds the images in a store that the user's runs share, one at a time, and writes them into this run's folder.
func (m *made) buildImages(ctx context.Context, programs testbuild.Set) error {
	cache, err := testbuild.CacheDir("images", "")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	lock, err := testserver.LockFile(ctx, filepath.Join(cache, "lock"), nil)
	if err != nil {
		return fmt.Errorf("wait for another process to build images: %w", err)
	}
	defer lock.Release()
	b := builder{store: filepath.Join(cache, "store"), run: filepath.Join(cache, "run")}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"the base of kbridge's image", b.golang},
		{"kbridge's image", func() error { return b.kbridge(m.kbridge, m.images) }},
		{"the image of a pod's first process", func() error { return b.program(programs.Path("pause"), pauseImage, m.images) }},
		{"the image of nats-server", func() error { return b.program(programs.Path("nats-server"), natsImage, m.images) }},
		{"room", b.prune},
	} {
		began := time.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("make %s: %w", step.what, err)
		}
		fmt.Fprintf(os.Stderr, "install: %s: %s\n", step.what, time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

func installPackages() error {
	if exec.Command("dpkg", append([]string{"-s"}, packages...)...).Run() == nil {
		return nil
	}
	fmt.Fprintln(os.Stderr, "install: installing", strings.Join(packages, " "))
	for _, args := range [][]string{{"update", "-qq"}, append([]string{"install", "-qq", "-y", "--no-install-recommends"}, packages...)} {
		cmd := exec.Command("apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install packages: apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// nodePrograms builds what a node runs beside containerd, and the programs of two images.
func nodePrograms(ctx context.Context) (testbuild.Set, error) {
	module, err := testbuild.FindModule("cluster")
	if err != nil {
		return testbuild.Set{}, err
	}
	version, err := exec.CommandContext(ctx, "go", "-C", module, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return testbuild.Set{}, fmt.Errorf("find the version of Kubernetes: %w", err)
	}
	natsVersion, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "github.com/nats-io/nats-server/v2").Output()
	if err != nil {
		return testbuild.Set{}, fmt.Errorf("find the version of nats-server: %w", err)
	}
	var sources []string
	for _, name := range []string{"kube", "pause"} {
		code, err := os.ReadFile(filepath.Join(module, name, "main.go"))
		if err != nil {
			return testbuild.Set{}, err
		}
		sources = append(sources, string(code))
	}
	key, err := testbuild.ModuleKey(module, append(sources, string(natsVersion))...)
	if err != nil {
		return testbuild.Set{}, err
	}
	dir, err := testbuild.CacheDir("node", key)
	if err != nil {
		return testbuild.Set{}, err
	}
	static := []string{"CGO_ENABLED=0"}
	programs := testbuild.Set{
		Module: module, Dir: dir,
		Programs: []testbuild.Program{
			{Name: "kube", Package: "./kube", LDFlags: testcluster.VersionFlags(strings.TrimSpace(string(version)))},
			{Name: "pause", Package: "./pause", LDFlags: "-s -w", Env: static},
		},
		Why: "the test of an installation runs a node. This happens once for this user: about six minutes of CPU",
	}
	if err := programs.Build(ctx, os.Stderr); err != nil {
		return testbuild.Set{}, err
	}
	// Of kbridge's own module, which has nats-server already.
	nats := testbuild.Set{
		Module: source, Dir: dir,
		Programs: []testbuild.Program{{Name: "nats-server", Package: "github.com/nats-io/nats-server/v2", LDFlags: "-s -w", Env: static}},
		Why:      "kbridge publishes to it",
	}
	return programs, nats.Build(ctx, os.Stderr)
}

// chartImage is the image that the chart uses without any values.
func chartImage() (string, error) {
	var about struct {
		AppVersion string `yaml:"appVersion"`
	}
	var values struct {
		Image struct {
			Repository string `yaml:"repository"`
		} `yaml:"image"`
	}
	for name, into := range map[string]any{"Chart.yaml": &about, "values.yaml": &values} {
		data, err := os.ReadFile(filepath.Join(chart, name))
		if err != nil {
			return "", err
		}
		if err := yaml.Unmarshal(data, into); err != nil {
			return "", fmt.Errorf("read %s of the chart: %w", name, err)
		}
	}
	return values.Image.Repository + ":" + about.AppVersion, nil
}

const (
	pauseImage = "localhost/pause:test"
	natsImage  = "localhost/nats-server:test"
	baseImage  = "localhost/golang:"
)

// builder builds images with buildah: without a daemon, without an image registry, in a store of its own.
type builder struct{ store, run string }

func (b builder) command(args ...string) *exec.Cmd {
	return exec.Command("buildah", append([]string{"--root", b.store, "--runroot", b.run, "--storage-driver", "overlay"}, args...)...)
}

func (b builder) buildah(args ...string) (string, error) {
	cmd := b.command(args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("buildah %s: %w\n%s%s", args[0], err, out, problems.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// goEnv asks the go command, which knows its settings wherever they come from.
func goEnv(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("go env %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// golang makes the image that the Dockerfile begins with out of what is here: a shell's commands, and this machine's
// authorities and settings for the go command. Go itself is mounted into the build. It is for this test alone: what is
// built on it trusts what this machine trusts.
func (b builder) golang() error {
	version, err := dockerfileGo()
	if err != nil {
		return err
	}
	container, err := b.buildah("from", "scratch")
	if err != nil {
		return err
	}
	defer func() { _, _ = b.buildah("rm", container) }() // the image is what counts
	root, err := b.buildah("mount", container)
	if err != nil {
		return err
	}
	for _, dir := range []string{"bin", "dev", "etc/ssl/certs", "go", "proc", "root", "sys", "tmp", "usr/local/go", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(root, dir), 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	authorities := os.Getenv("SSL_CERT_FILE")
	if authorities == "" {
		authorities = "/etc/ssl/certs/ca-certificates.crt"
	}
	for from, to := range map[string]string{"/bin/busybox": "bin/busybox", authorities: "etc/ssl/certs/ca-certificates.crt"} {
		if err := copyFile(from, filepath.Join(root, to)); err != nil {
			return err
		}
	}
	applets, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		return fmt.Errorf("list the commands of busybox: %w", err)
	}
	for name := range strings.FieldsSeq(string(applets)) {
		if name == "busybox" {
			continue // it lists itself
		}
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			return err
		}
	}
	settings := []string{"config", "--workingdir", "/go"}
	for _, variable := range []string{"PATH=/usr/local/go/bin:/go/bin:/bin", "HOME=/root", "GOPATH=/go", "GOTOOLCHAIN=local", "GOMODCACHE=" + hostModules, "GOCACHE=" + hostCache} {
		settings = append(settings, "--env", variable)
	}
	for _, name := range []string{"GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE"} {
		value, err := goEnv(name)
		if err != nil {
			return err
		}
		settings = append(settings, "--env", name+"="+value)
	}
	for _, args := range [][]string{{"umount", container}, append(settings, container), {"commit", "-q", container, baseImage + version}} {
		if _, err := b.buildah(args...); err != nil {
			return err
		}
	}
	return nil
}

// dockerfileGo is the version of Go that the Dockerfile asks for.
func dockerfileGo() (string, error) {
	data, err := os.ReadFile(filepath.Join(source, "Dockerfile"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if version, ok := strings.CutPrefix(line, "ARG GO_VERSION="); ok {
			return strings.TrimSpace(version), nil
		}
	}
	return "", errors.New("the Dockerfile has no ARG GO_VERSION")
}

// Where a build finds this machine's caches: not where the Dockerfile has the builder's.
const (
	hostModules = "/host/modules"
	hostCache   = "/host/cache"
)

// kbridge builds the Dockerfile, with this machine's Go and its caches.
func (b builder) kbridge(name, archives string) error {
	args := []string{"bud", "-q", "--isolation", "chroot", "--pull-never", "--network", "host"}
	for variable, target := range map[string]string{"GOROOT": "/usr/local/go", "GOMODCACHE": hostModules, "GOCACHE": hostCache} {
		dir, err := goEnv(variable)
		if err != nil {
			return err
		}
		args = append(args, "--volume", dir+":"+target)
	}
	args = append(args, "--build-arg", "VERSION="+testVersion, "--build-arg", "REVISION="+testRevision, "-t", name, source)
	if _, err := b.buildah(args...); err != nil {
		return err
	}
	return b.archive(name, archives)
}

// What the image is told of itself.
const (
	testVersion  = "v0.0.0-test"
	testRevision = "0123456789abcdef0123456789abcdef01234567"
)

// program makes an image of one static program.
func (b builder) program(path, name, archives string) error {
	dir, err := os.MkdirTemp("", "kbridge-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copyFile(path, filepath.Join(dir, "program")); err != nil {
		return err
	}
	dockerfile := filepath.Join(dir, "Dockerfile")
	if err := os.WriteFile(dockerfile, []byte("FROM scratch\nCOPY program /program\nENTRYPOINT [\"/program\"]\n"), 0o600); err != nil {
		return err
	}
	if _, err := b.buildah("bud", "-q", "--isolation", "chroot", "-t", name, dir); err != nil {
		return err
	}
	return b.archive(name, archives)
}

// prune forgets what was built before under the same names.
func (b builder) prune() error {
	_, err := b.buildah("rmi", "--prune", "--force")
	return err
}

// archive writes the image for containerd to import.
func (b builder) archive(name, archives string) error {
	file := filepath.Join(archives, strings.NewReplacer("/", "_", ":", "_").Replace(name)+".tar")
	_, err := b.buildah("push", "-q", name, "oci-archive:"+file+":"+name)
	return err
}

// archives are the files that make wrote.
func (m *made) archives() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(m.images, "*.tar"))
	slices.Sort(files)
	return files, err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
