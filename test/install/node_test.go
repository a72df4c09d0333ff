//go:build install && linux

package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/kbridge-io/kbridge/internal/testcluster"
	"github.com/kbridge-io/kbridge/internal/testserver"
)

const (
	apiServer   = "https://" + nodeIP + ":6443"
	etcdURL     = "http://127.0.0.1:2379"
	nodeName    = "node1"
	servicesNet = "10.0.0.0/24"
	podsNet     = "10.244.0.0/24"
)

// node is a cluster of one node. All of it is in this process's namespaces, so it uses the usual ports, and ends with them.
type node struct {
	made
	dir       string
	config    *rest.Config
	client    *kubernetes.Clientset
	processes []*testserver.Process
}

// cluster is the one that all tests share.
var cluster *node

func tests(m *testing.M) (int, error) {
	n := &node{made: madeFromEnvironment(), dir: os.Getenv(dirVariable)}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	if err := n.start(ctx); err != nil {
		return 1, fmt.Errorf("start the cluster: %w", err)
	}
	fmt.Fprintf(os.Stderr, "install: the cluster is ready: %s\n", time.Since(began).Round(100*time.Millisecond))
	cluster = n
	code := m.Run()
	if code != 0 {
		for _, p := range n.processes {
			fmt.Fprintln(os.Stderr, p.LogTail())
		}
	}
	return code, nil
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) start(ctx context.Context) error {
	if err := n.writeCredentials(); err != nil {
		return fmt.Errorf("write credentials: %w", err)
	}
	for _, step := range []func(context.Context) error{n.startControlPlane, n.startContainerd, n.startNode, n.awaitNode, n.provideVolumes, n.serveNames} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// accounts are the tokens of those who log in, each with its user and groups.
var accounts = map[string]string{
	"admin": "admin,admin,system:masters",
	"kcm":   "system:kube-controller-manager,kcm,",
	"sched": "system:kube-scheduler,sched,",
	"proxy": "system:kube-proxy,proxy,",
	"node":  "system:node:" + nodeName + ",node,system:nodes",
}

func (n *node) writeCredentials() error {
	crt, key, err := cert.GenerateSelfSignedCertKey(nodeIP, []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP("10.0.0.1")},
		[]string{"localhost", "kubernetes.default.svc", "kubernetes.default"})
	if err != nil {
		return err
	}
	accountKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	var tokens strings.Builder
	for name, rest := range accounts {
		fmt.Fprintf(&tokens, "%s-token,%s\n", name, rest)
	}
	for name, data := range map[string][]byte{"api.crt": crt, "api.key": key, "sa.key": accountKey, "tokens.csv": []byte(tokens.String())} {
		if err := os.WriteFile(n.path(name), data, 0o600); err != nil {
			return err
		}
	}
	for name := range accounts {
		config := &rest.Config{Host: apiServer, BearerToken: name + "-token", TLSClientConfig: rest.TLSClientConfig{CAData: crt}, QPS: -1}
		if err := testcluster.WriteKubeconfig(n.path(name+".kubeconfig"), config); err != nil {
			return err
		}
		if name == "admin" {
			n.config = config
		}
	}
	// As the parts of Kubernetes itself do: it saves the API server much of its work.
	fast := rest.CopyConfig(n.config)
	fast.ContentType = "application/vnd.kubernetes.protobuf"
	n.client, err = kubernetes.NewForConfig(fast)
	return err
}

// run starts a part of the cluster, which is ready when there is no error.
func (n *node) run(ctx context.Context, name string, ready func(context.Context) error, path string, args ...string) error {
	p := &testserver.Process{
		Name: name, Log: n.path(name + ".log"), Ready: ready,
		Command: func() *exec.Cmd {
			cmd := exec.Command(path, args...)
			cmd.Dir = n.dir
			return cmd
		},
	}
	n.processes = append(n.processes, p)
	return p.Start(ctx)
}

func always(context.Context) error { return nil }

func (n *node) startControlPlane(ctx context.Context) error {
	dialed := func(context.Context) error {
		c, err := net.Dial("tcp", strings.TrimPrefix(etcdURL, "http://"))
		if err != nil {
			return err
		}
		return c.Close()
	}
	if err := n.run(ctx, "etcd", dialed, n.etcd,
		"--data-dir="+n.path("etcd"), "--unsafe-no-fsync", "--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls=http://127.0.0.1:0", "--log-level=warn"); err != nil {
		return err
	}
	ready := func(ctx context.Context) error {
		return n.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	if err := n.run(ctx, "kube-apiserver", ready, n.apiserver,
		"--etcd-servers="+etcdURL, "--secure-port=6443", "--bind-address=0.0.0.0", "--advertise-address="+nodeIP,
		"--tls-cert-file=api.crt", "--tls-private-key-file=api.key", "--token-auth-file=tokens.csv",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key",
		"--service-cluster-ip-range="+servicesNet, "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
		"--shutdown-watch-termination-grace-period=1s"); err != nil {
		return err
	}
	if err := n.run(ctx, "kube-controller-manager", always, n.kube, "kube-controller-manager", "--kubeconfig=kcm.kubeconfig",
		"--service-account-private-key-file=sa.key", "--root-ca-file=api.crt", "--use-service-account-credentials=true",
		"--leader-elect=false", "--secure-port=0", "--cluster-name=test"); err != nil {
		return err
	}
	return n.run(ctx, "kube-scheduler", always, n.kube, "kube-scheduler", "--kubeconfig=sched.kubeconfig", "--leader-elect=false", "--secure-port=0")
}

const containerdConfig = `
version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  disable_apparmor = true
  # Root may lack CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`

const podNetwork = `
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + podsNet + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
`

func (n *node) startContainerd(ctx context.Context) error {
	if err := os.MkdirAll("/etc/cni/net.d", 0o755); err != nil {
		return err
	}
	for file, text := range map[string]string{n.path("containerd.toml"): containerdConfig, "/etc/cni/net.d/10-bridge.conflist": podNetwork} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	ready := func(ctx context.Context) error { return exec.CommandContext(ctx, "ctr", "version").Run() }
	if err := n.run(ctx, "containerd", ready, "containerd", "--config=containerd.toml"); err != nil {
		return err
	}
	archives, err := n.archives()
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if out, err := exec.CommandContext(ctx, "ctr", "-n", "k8s.io", "images", "import", archive).CombinedOutput(); err != nil {
			return fmt.Errorf("import %s: %w\n%s", archive, err, out)
		}
	}
	return nil
}

const kubeletConfig = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
# It listens in a network of its own.
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
address: ` + nodeIP + `
enforceNodeAllocatable: [pods]
evictionHard: {memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
resolvConf: ""
clusterDomain: cluster.local
clusterDNS: [` + nodeIP + `]
seccompDefault: true
nodeStatusUpdateFrequency: 5s
`

func (n *node) startNode(ctx context.Context) error {
	if err := os.WriteFile(n.path("kubelet.yaml"), []byte(kubeletConfig), 0o600); err != nil {
		return err
	}
	if err := n.run(ctx, "kubelet", always, n.kube, "kubelet", "--config=kubelet.yaml", "--kubeconfig=node.kubeconfig",
		"--hostname-override="+nodeName, "--node-ip="+nodeIP); err != nil {
		return err
	}
	return n.run(ctx, "kube-proxy", always, n.kube, "kube-proxy", "--kubeconfig=proxy.kubeconfig", "--proxy-mode=nftables",
		"--hostname-override="+nodeName, "--cluster-cidr="+podsNet, "--healthz-bind-address=127.0.0.1:10256", "--conntrack-max-per-core=0")
}

func (n *node) awaitNode(ctx context.Context) error {
	for ; ; time.Sleep(200 * time.Millisecond) {
		err := n.ready(ctx)
		if err == nil {
			return nil
		}
		for _, p := range n.processes {
			if !p.Running() {
				return fmt.Errorf("%s has ended\n%s", p.Name, p.LogTail())
			}
		}
		if ctx.Err() != nil {
			var logs strings.Builder
			for _, p := range n.processes {
				logs.WriteString("\n" + p.LogTail())
			}
			return fmt.Errorf("the node does not get ready: %w%s", err, logs.String())
		}
	}
}

func (n *node) ready(ctx context.Context) error {
	got, err := n.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range got.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			_, err := n.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
			return err
		}
	}
	return errors.New("the node is not ready")
}
