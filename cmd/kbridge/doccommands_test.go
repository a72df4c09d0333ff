package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the docs tell the reader to type is here: by which test it is run, or why none can run it.
const (
	ownCluster = "for one's own cluster" // or other service, or machine with a node: what it works on is the reader's
	long       = "too long for CI"       // a measurement, or a search without an end
	ci         = ".ci/run"               // a step of it
	literally  = "literally"             // TestCommandsOfTheDocsThatNeedNoServer types it
)

var docCommands = map[string]string{
	"make demo":          ci,
	"make test":          ci,
	"make vuln outdated": "TestAFindingFailsWhereKbridgesCodeReachesIt", // each a step of CI
	"make":               "TestTheMakefileShowsItsTargets",
	"make browser":       ci,
	"make screenshot":    "TestThePageShowsAClusterAndABrokenSinkLive",
	"make lint fuzz":     ownCluster, // fuzzing has no end that CI could wait for
	"make chart":         "TestHelmHasNothingAgainstTheChart",
	"make install-test":  ownCluster,
	"make image IMAGE=registry.example.com/kbridge:v1": ownCluster,
	"make release": "TestTwoReleasesOfOneCommitAreEqualAndWhole",
	"go test ./bridge/ ./event/ ./informer/...": ci,

	"go run ./examples/consumer/nats -url nats://127.0.0.1:4222 -stream KBRIDGE":            "TestTheNATSConsumerHasTheClustersObjectsWhateverHappens",
	"go run ./examples/consumer/kafka -brokers 127.0.0.1:9092 -topic k8s.apps.deployments":  "TestTheKafkaConsumerHasTheClustersObjectsWhateverHappens",
	"python3 -m pip install --requirement examples/consumer/python/requirements.txt":        "TestTheConsumerInPythonHasTheClustersObjectsWhateverHappens",
	"python3 examples/consumer/python/main.py --url nats://127.0.0.1:4222 --stream KBRIDGE": "TestTheConsumerInPythonHasTheClustersObjectsWhateverHappens",
	"curl -s http://127.0.0.1:8090": "TestTheNATSConsumerHasTheClustersObjectsWhateverHappens",

	"make bench":                              long,
	"make bench BENCH='-run jetstream -n 9'":  long,
	"make bench BENCH=-update":                long,
	"make bench BENCH=-quick":                 long,
	"go run ./bench -list":                    long,
	"go run ./bench -run stdout -profile DIR": long,

	"make build": "TestTheREADMEsExperimentWorks", // which builds the same program
	"bin/kbridge run --config examples/quickstart.yaml --embedded":                           "TestTheREADMEsExperimentWorks",
	"bin/kbridge tail --config examples/quickstart.yaml":                                     "TestTheREADMEsExperimentWorks",
	"bin/kbridge rbac --config examples/quickstart.yaml":                                     "TestTheQuickstartsPermissionsAreThoseThatItNeeds",
	"kubectl create configmap hello --from-literal=who=world":                                "TestTheREADMEsExperimentWorks",
	"kubectl delete configmap hello":                                                         "TestTheREADMEsExperimentWorks",
	"kill -9 $(pgrep -f 'kbridge run')":                                                      "TestTheREADMEsExperimentWorks",
	"kbridge tail --since 10m":                                                               "TestTailReadsTheEmbeddedServerOfItsDataDirectory",
	"kbridge tail -o json --filter 'k8s.*.apps.>'":                                           "TestTailReadsTheSinkOfTheConfiguration",
	"kbridge run --config FILE [--kubeconfig F] [--context C] [--embedded]":                  "TestRunPublishesAndEndsWithNothingLeftRunning",
	"kbridge check examples/nats.yaml":                                                       literally,
	"kbridge check examples/kafka.yaml":                                                      literally,
	"kbridge check FILE [--connect]":                                                         "TestCheckConnectFindsNothingMissingWhereAllIsThere",
	"kbridge check --connect kbridge.yaml":                                                   "TestCheckConnectFindsNothingMissingWhereAllIsThere",
	"kbridge rbac --config FILE [--namespace NS] [--service-account SA]":                     literally,
	"kbridge rbac --config kbridge.yaml --namespace observability --service-account kbridge": literally,
	"kbridge ready [--url URL]":                                                              "TestReadyPrintsWhatReadyzSaysAndExitsWithIt",
	"kbridge tail [--config FILE] [--sink NAME]":                                             "TestTailReadsTheSinkOfTheConfiguration",
	"kbridge version": literally,

	"helm install kbridge deploy/helm/kbridge --namespace observability --create-namespace --wait":                           ownCluster,
	"helm upgrade --install kbridge deploy/helm/kbridge --namespace observability --values values.yaml --wait":               ownCluster,
	"helm upgrade kbridge deploy/helm/kbridge --namespace observability --reuse-values --set persistence.size=20Gi":          ownCluster,
	"helm test kbridge --namespace observability":                                                                            ownCluster,
	"kubectl exec -n observability statefulset/kbridge -- kbridge tail":                                                      ownCluster,
	"kubectl exec -n observability statefulset/kbridge -- kbridge check --connect --config /etc/kbridge/config.yaml":         ownCluster,
	"kubectl exec -n observability kbridge-0 -- kbridge check --connect --config /etc/kbridge/config.yaml":                   ownCluster,
	"kubectl exec -n observability kbridge-0 -- kbridge ready":                                                               ownCluster,
	"kubectl logs -n observability kbridge-0 --previous":                                                                     ownCluster,
	`kubectl logs -n observability kbridge-0 --since=1h | grep -E '"level":"(WARN|ERROR)"'`:                                  ownCluster,
	"kubectl port-forward -n observability statefulset/kbridge 8080":                                                         ownCluster,
	"kubectl port-forward -n observability statefulset/kbridge 6060:PORT":                                                    ownCluster,
	"kubectl logs -n observability statefulset/kbridge | grep profiles":                                                      ownCluster,
	"go tool pprof http://127.0.0.1:6060/debug/pprof/heap":                                                                   ownCluster,
	`curl -s http://127.0.0.1:8080/statusz | jq -r '.problems[] | "\(.about): \(.text)\n \(.advice)"'`:                       ownCluster,
	"kubectl describe pod -n observability kbridge-0":                                                                        ownCluster,
	"kubectl delete statefulset -n observability kbridge --cascade=orphan":                                                   ownCluster,
	`kubectl patch pvc -n observability data-kbridge-0 --patch '{"spec": {"resources": {"requests": {"storage": "20Gi"}}}}'`: ownCluster,
	"etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted …":                                                 ownCluster,
}

// documents returns the files that tell a reader what to do, by their path from the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/helm/kbridge/*.md", "examples/*.yaml", "examples/*/*.yaml", "examples/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			name, err := filepath.Rel(filepath.Join("..", ".."), file)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, filepath.ToSlash(name))
		}
	}
	return files
}

var (
	fence   = regexp.MustCompile("^ *```([a-z]*)")
	comment = regexp.MustCompile(`(?:^|\s+)# .*$`)
	// typed is how a command line begins, and neither YAML, JSON, a query nor prose that is indented.
	typed = regexp.MustCompile(`^(?:\$ |sudo |[A-Z_]+=\S+ )*([a-z][a-z0-9./-]*)(?: |$)`)
)

// commandsIn returns the commands of a document: the lines of a fence that says it is a shell's, and those that begin as
// a command does of one without a language and of an indented block.
func commandsIn(text string) []string {
	const none = "none"
	var commands []string
	language, block, blank := none, false, true
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimRight(line, "\n ")
		if m := fence.FindStringSubmatch(line); m != nil {
			if language == none {
				language = m[1]
			} else {
				language = none
			}
			continue
		}
		block = language == none && strings.HasPrefix(line, "    ") && (block || blank)
		blank = line == ""
		shell := slices.Contains([]string{"sh", "bash", "shell", "console", "zsh"}, language)
		if !shell && !block && language != "" {
			continue
		}
		line = strings.Join(strings.Fields(comment.ReplaceAllString(line, "")), " ")
		if line != "" && (shell && language != "console" || typed.MatchString(line)) {
			commands = append(commands, strings.TrimPrefix(line, "$ "))
		}
	}
	return commands
}

func TestEachCommandInTheDocsIsRunByATestOrMarked(t *testing.T) {
	tests, steps := testsOfTheRepository(t), strings.Split(read(t, ".ci/run"), "\n")
	seen := map[string]bool{}
	for _, doc := range documents(t) {
		text := read(t, doc)
		if strings.HasSuffix(doc, ".yaml") { // there the comments are the document
			text = strings.Join(matchesInOrder(text, `(?m)^# ?(.*)$`), "\n")
		}
		for _, command := range commandsIn(text) {
			seen[command] = true
			switch by := docCommands[command]; {
			case by == "":
				t.Errorf("%s tells the reader to type\n    %s\nwhich no test runs: add it to docCommands, with the test that does, or as for one's own cluster", doc, command)
			case by == ci:
				if !slices.ContainsFunc(steps, func(step string) bool { return strings.HasPrefix(step, strings.ReplaceAll(command, "/ ", " ")) }) {
					t.Errorf("%s: %q is no step of .ci/run", doc, command)
				}
			case by != ownCluster && by != long && by != literally && !strings.Contains(tests, "func "+by+"("):
				t.Errorf("%s: %q is said to be run by %s, which is no test", doc, command, by)
			}
			parses(t, doc, command)
		}
	}
	for command := range docCommands {
		if !seen[command] && docCommands[command] != ci {
			t.Errorf("%q is in no document", command)
		}
	}
}

// parses checks what can be checked of any command: kbridge's command line, and that make has the target.
func parses(t *testing.T, doc, command string) {
	t.Helper()
	words := strings.Fields(strings.NewReplacer("[", "", "]", "", "'", "").Replace(command))
	if len(words) > 0 {
		words[0] = strings.TrimPrefix(words[0], "bin/")
	}
	if rest, ok := strings.CutPrefix(strings.Join(words, " "), "go run ./cmd/kbridge "); ok {
		words = append([]string{"kbridge"}, strings.Fields(rest)...)
	}
	switch words[0] {
	case "kbridge":
		cmd, args, err := rootCommand(&bytes.Buffer{}, &bytes.Buffer{}).Find(words[1:])
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %q: %v", doc, command, err)
		}
	case "make":
		for _, target := range words[1:] {
			if strings.Contains(target, "=") {
				return
			}
			if !strings.Contains(read(t, "Makefile"), "\n"+target+":") {
				t.Errorf("%s: %q: there is no target %s", doc, command, target)
			}
		}
	}
}

func TestCommandsOfTheDocsThatNeedNoServer(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	optional := regexp.MustCompile(`\[[^]]*\]`)
	for command, by := range docCommands {
		if by != literally {
			continue
		}
		for _, line := range []string{optional.ReplaceAllString(command, ""), strings.NewReplacer("[", "", "]", "").Replace(command)} {
			line = strings.NewReplacer("FILE", "examples/quickstart.yaml", " NS", " obs", " SA", " sa", " kbridge.yaml", " examples/quickstart.yaml").Replace(line)
			if code, out, errs := kbridge(t, strings.Fields(line)[1:]...); code != 0 || out == "" {
				t.Errorf("%s: it exits with %d and prints %q, %s", line, code, out, errs)
			}
		}
	}
}

func TestACommandIsFoundWhereverADocumentHasIt(t *testing.T) {
	const document = "Text.\n\n    make x   # a comment\n    helm install \\\n      y\n\n    kbridge_up > 0\n    key: value\n    {\"a\":1}\n" +
		"\n```sh\nA=1 ./script.sh b # c\n```\n```yaml\nnope: 1\n```\n```\nkbridge.yaml:4: wrong\ncurl -s x\n```\n" +
		"```console\n$ nats sub k8s\nOutput: yes\n```\n1. an item\n    that goes on\n\n  - item\n\n        kubectl get pods\n"
	want := []string{"make x", "helm install y", "A=1 ./script.sh b", "curl -s x", "nats sub k8s", "kubectl get pods"}
	if got := commandsIn(document); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestTheMakefileShowsItsTargets(t *testing.T) {
	for _, target := range matches(read(t, "Makefile"), `(?m)^\.PHONY: (\S+)$`) {
		if !regexp.MustCompile(`(?m)^` + target + `:[^\n]*## \S`).MatchString(read(t, "Makefile")) {
			t.Errorf("make does not say what %s is", target)
		}
	}
}

// testsOfTheRepository returns the source of all tests.
func testsOfTheRepository(t *testing.T) string {
	t.Helper()
	var source strings.Builder
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		source.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return source.String()
}

func matchesInOrder(text, pattern string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}
