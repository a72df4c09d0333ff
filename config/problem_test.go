package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const pods = "resources: [{resource: pods}]\n"

// nats is a file with one NATS sink; settings follow in lines from 6 on, each
// indented as nats' keys.
func nats(settings ...string) string {
	s := pods + "sinks:\n  - name: live\n    nats:\n      urls: ['nats://n:4222']\n"
	for _, l := range settings {
		s += "      " + l + "\n"
	}
	return s
}

// resource is a file with one resource; settings follow in lines from 3 on.
func resource(settings ...string) string {
	s := "resources:\n  - resource: pods\n"
	for _, l := range settings {
		s += "    " + l + "\n"
	}
	return s
}

// sink is a file with one sink on standard output; settings follow in lines from 5 on.
func sink(settings ...string) string {
	s := pods + "sinks:\n  - name: out\n    stdout: {}\n"
	for _, l := range settings {
		s += "    " + l + "\n"
	}
	return s
}

// letters is a file with a NATS sink whose dead letters go to the subject in line 6.
func letters(subject string) string {
	return nats() + "    deadLetter: {subject: " + subject + "}\n"
}

const (
	aString    = "a string"
	aQuoted    = "a string (put it in quotes)"
	aNamespace = "a namespace: at most 63 lower-case letters, digits and '-'"
	aName      = "a name of at most 63 lower-case letters, digits and '-'"
	aCollector = "an http or https URL such as http://otel-collector:4318, without user and password"
	aPlural    = "a lower-case plural such as deployments, without its group"
	aSize      = "a size such as 64MiB, 1GiB or 1000000"
	aDuration  = "a duration such as 10s, 2m, 24h or 7d"
	aURL       = "a URL such as nats://nats:4222, tls://…, ws://… or wss://…"
	noUserinfo = "a URL without user and password: use user and passwordFile, tokenFile, creds or nkey"
	anAddress  = "host:port, :port or an empty string"
	aStream    = `a stream's name: no spaces, '.', '*', '>', '/' and '\'`
	aSubject   = "a subject such as dead.live "
	aToken     = "a file such as /etc/kbridge/http/token"
	aState     = "it, with the folder that keeps the state: {dir: /var/lib/kbridge}"
	disjoint   = "entries of one resource and sink to have lists of namespaces with none in common"
	theSubject = "a subject such as k8s.{cluster}.{group}.{resource}.{namespace}.{name} "
)

func TestEveryProblemIsReportedWithPathLineValueAndExpectation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []Problem
	}{
		"empty file":             {"", []Problem{{"resources", 1, "none", "at least one"}}},
		"file of comments":       {"# nothing\n", []Problem{{"resources", 1, "none", "at least one"}}},
		"empty document":         {"---\n", []Problem{{"resources", 1, "none", "at least one"}}},
		"no resource":            {"cluster: a\nresources: []\n", []Problem{{"resources", 2, "none", "at least one"}}},
		"list for a file":        {"- a\n", []Problem{{"", 1, "a list", "a map"}}},
		"string for a file":      {"a\n", []Problem{{"", 1, `"a"`, "a map"}}},
		"second document":        {pods + "---\n" + pods, []Problem{{"", 2, "a second document", "one document in the file"}}},
		"syntax error":           {"cluster: a\nresources: [\n  {resource: 'pods}\n", []Problem{{"", 3, "YAML syntax: ' is not closed", "another one behind it"}}},
		"syntax error in line 1": {"cluster: 'a\n", []Problem{{"", 1, "YAML syntax: ' is not closed", "another one behind it"}}},
		"error after the file":   {pods + "---\n'", []Problem{{"", 3, "YAML syntax: ' is not closed", "another one behind it"}}},
		"tab":                    {"kubernetes:\n\tqps: 1\n", []Problem{{"", 2, "YAML syntax: a tab in the indentation", "spaces"}}},
		"tab behind spaces":      {"resources:\n  - resource: pods\n  \tname: a\n", []Problem{{"", 3, "YAML syntax: a tab in the indentation", "spaces"}}},
		"open bracket":           {"resources:\n  - {resource: pods, namespaces: [a, b}\n  - {resource: secrets} # [\ncluster: \"a ]\"\n", []Problem{{"", 2, "YAML syntax: [ is not closed", "a ] behind it"}}},
		"open brace":             {"cluster: it's [\nresources:\n  - {resource: pods\nsinks: []\n", []Problem{{"", 3, "YAML syntax: { is not closed", "a } behind it"}}},
		"open quote":             {pods + "cluster: \"a \\\" b\nsinks: []\n", []Problem{{"", 2, "YAML syntax: \" is not closed", "another one behind it"}}},
		"colon in a value":       {pods + "cluster: a: b\n", []Problem{{"", 2, "YAML syntax: mapping values are not allowed in this context", "a value in quotes where it has a colon and a space, or another indentation"}}},
		"something else":         {pods + "cluster: %a\n", []Problem{{"", 2, "YAML syntax: found character that cannot start any token", "valid YAML"}}},
		"nothing for no keys":    {pods + "sinks: [{name: a, stdout: }]\n", []Problem{{"sinks[0].stdout", 2, "nothing", "{}, as it has no keys"}}},
		"unknown alias":          {pods + "cluster: *c\n", []Problem{{"", 2, "YAML syntax: unknown anchor 'c' referenced", "valid YAML"}}},
		"no UTF-8":               {pods + "cluster: \xff\n", []Problem{{"", 2, "bytes that are no text", "YAML in UTF-8"}}},
		"zero byte":              {pods + "cluster: a\x00\n", []Problem{{"", 2, "bytes that are no text", "YAML in UTF-8"}}},

		"unknown key near a known one":   {resource("namespace: [a]"), []Problem{{"resources[0].namespace", 3, "unknown key", "did you mean namespaces?"}}},
		"unknown key in other case":      {resource("labelselector: a=b"), []Problem{{"resources[0].labelselector", 3, "unknown key", "did you mean labelSelector?"}}},
		"unknown key near none":          {pods + "metrics: {}\n", []Problem{{"metrics", 2, "unknown key", "one of cluster, kubernetes, resources, sinks, state, server, tracing, strict"}}},
		"unknown key in a map of none":   {pods + "sinks: [{name: a, stdout: {color: true}}]\n", []Problem{{"sinks[0].stdout.color", 2, "unknown key", "no keys here"}}},
		"unknown key that is odd":        {pods + "\"a.b\\nc\": 1\n", []Problem{{`["a_b\nc"]`, 2, "unknown key", "one of cluster, kubernetes, resources, sinks, state, server, tracing, strict"}}},
		"unknown kind of sink":           {pods + "sinks: [{name: a, redis: {brokers: [k]}}]\n", []Problem{{"sinks[0].redis", 2, "unknown key", "one of name, format, window, whenFull, foldAfter, oversize, poison, deadLetter, nats, kafka, stdout"}}},
		"key of a later version, filter": {resource("filter: 'true'"), []Problem{{"resources[0].filter", 3, "unknown key", "one of name, group, version, resource, namespaces, excludeNamespaces, labelSelector, fieldSelector, types, resync, onStart, drop, dropDefaults, secrets, data, verify, sinks"}}},
		"key that is a list":             {pods + "[a]: 1\n", []Problem{{"", 2, "a list as a key", "a plain key"}}},
		"duplicate key":                  {resource("data: object", "data: change"), []Problem{{"resources[0].data", 4, "duplicate key", "it once, and it stands in line 3 already"}}},
		"merge key":                      {"resources:\n  - &a {resource: pods}\n  - <<: *a\n    resource: services\n", []Problem{{`resources[1]["<<"]`, 3, "unknown key", "the keys themselves, merging is not supported"}}},

		"tag of a map on a string":   {pods + "kubernetes: !!map a\n", []Problem{{"kubernetes", 2, "a", "a map"}}},
		"tag of nothing on a file":   {"!!null {resources: [{resource: pods}]}\n", []Problem{{"", 1, `a map tagged "!!null"`, "a map"}}},
		"tag alone":                  {pods + "cluster: !x\n", []Problem{{"cluster", 2, "nothing", aString}}},
		"number for a string":        {pods + "cluster: 42\n", []Problem{{"cluster", 2, "42", aQuoted}}},
		"date for a string":          {resource("namespaces: [2026-11-30]"), []Problem{{"resources[0].namespaces[0]", 3, "2026-11-30", aQuoted}}},
		"list for a string":          {pods + "cluster: [a]\n", []Problem{{"cluster", 2, "a list", aString}}},
		"nothing for a string":       {pods + "cluster:\n", []Problem{{"cluster", 2, "nothing", aString}}},
		"tagged string":              {pods + "cluster: !secret a\n", []Problem{{"cluster", 2, "a", aQuoted}}},
		"string for a list":          {resource("namespaces: shop"), []Problem{{"resources[0].namespaces", 3, `"shop"`, "a list"}}},
		"nothing for a list":         {resource("namespaces:"), []Problem{{"resources[0].namespaces", 3, "nothing", "a list"}}},
		"map for a list":             {"resources: {resource: pods}\n", []Problem{{"resources", 1, "a map", "a list"}}},
		"string for a map":           {pods + "sinks:\n  - name: a\n    nats: nats://n\n", []Problem{{"sinks[0].nats", 4, `"nats://n"`, "a map"}}},
		"nothing for a map":          {pods + "sinks:\n  - name: a\n    stdout:\n", []Problem{{"sinks[0].stdout", 4, "nothing", "{}, as it has no keys"}}},
		"string for a map in a list": {"resources:\n  - pods\n", []Problem{{"resources[0]", 2, `"pods"`, "a map"}}},
		"string for a bool":          {resource("dropDefaults: 'yes'"), []Problem{{"resources[0].dropDefaults", 3, `"yes"`, "true or false"}}},
		"string for an int":          {pods + "kubernetes: {burst: many}\n", []Problem{{"kubernetes.burst", 2, `"many"`, "a whole number"}}},
		"fraction for an int":        {pods + "kubernetes: {burst: 1.5}\n", []Problem{{"kubernetes.burst", 2, "1.5", "a whole number"}}},
		"huge int":                   {pods + "kubernetes: {burst: 99999999999999999999}\n", []Problem{{"kubernetes.burst", 2, "99999999999999999999", "a whole number"}}},
		"no collector":               {pods + "tracing: {}\n", []Problem{{"tracing.otlpEndpoint", 2, "missing", aCollector}}},
		"a collector without http":   {pods + "tracing: {otlpEndpoint: 'otel:4317'}\n", []Problem{{"tracing.otlpEndpoint", 2, `"otel:4317"`, aCollector}}},
		"a collector's password":     {pods + "tracing: {otlpEndpoint: 'https://u:hunter2@otel'}\n", []Problem{{"tracing.otlpEndpoint", 2, `"https://***@otel"`, aCollector}}},
		"no sample":                  {pods + "tracing: {otlpEndpoint: 'http://otel', sampleRatio: 0}\n", []Problem{{"tracing.sampleRatio", 2, "0", "more than 0, and 1 at most"}}},
		"more samples than events":   {pods + "tracing: {otlpEndpoint: 'http://otel', sampleRatio: 1.5}\n", []Problem{{"tracing.sampleRatio", 2, "1.5", "more than 0, and 1 at most"}}},
		"string for a number":        {pods + "kubernetes: {qps: fast}\n", []Problem{{"kubernetes.qps", 2, `"fast"`, "a number"}}},
		"no number":                  {pods + "kubernetes: {qps: .nan}\n", []Problem{{"kubernetes.qps", 2, ".nan", "a number"}}},
		"infinite number":            {pods + "kubernetes: {qps: .inf}\n", []Problem{{"kubernetes.qps", 2, ".inf", "a number"}}},
		"empty namespaces":           {resource("namespaces: []"), []Problem{{"resources[0].namespaces", 3, "an empty list", "at least one (leave the key out for the default)"}}},
		"empty types":                {resource("types: []"), []Problem{{"resources[0].types", 3, "an empty list", "at least one (leave the key out for the default)"}}},
		"empty sinks of a resource":  {resource("sinks: []"), []Problem{{"resources[0].sinks", 3, "an empty list", "at least one (leave the key out for the default)"}}},
		"empty list by an alias": {"resources:\n  - {resource: pods, drop: &none []}\n  - {resource: nodes, types: *none}\n", []Problem{
			{"resources[1].types", 3, "an empty list", "at least one (leave the key out for the default)"}}},

		"cluster with a slash":    {pods + "cluster: eu/prod\n", []Problem{{"cluster", 2, `"eu/prod"`, "letters, digits, '.', '_' and '-'"}}},
		"cluster with a space":    {pods + "cluster: eu prod\n", []Problem{{"cluster", 2, `"eu prod"`, "letters, digits, '.', '_' and '-'"}}},
		"no requests":             {pods + "kubernetes: {qps: 0, burst: 0}\n", []Problem{{"kubernetes.qps", 2, "0", "a number from 0.001 to 1000000"}, {"kubernetes.burst", 2, "0", "at least 1"}}},
		"requests of no float32":  {pods + "kubernetes: {qps: 1e-50}\n", []Problem{{"kubernetes.qps", 2, "1e-50", "a number from 0.001 to 1000000"}}},
		"requests without end":    {pods + "kubernetes: {qps: 1e+39}\n", []Problem{{"kubernetes.qps", 2, "1e+39", "a number from 0.001 to 1000000"}}},
		"negative requests":       {pods + "kubernetes:\n  qps: -1\n  burst: -2\n", []Problem{{"kubernetes.qps", 3, "-1", "a number from 0.001 to 1000000"}, {"kubernetes.burst", 4, "-2", "at least 1"}}},
		"objects too small":       {pods + "kubernetes: {maxObject: 16}\n", []Problem{{"kubernetes.maxObject", 2, "16", "1MiB to 16MiB"}}},
		"objects too large":       {pods + "kubernetes: {maxObject: 17MiB}\n", []Problem{{"kubernetes.maxObject", 2, "17MiB", "1MiB to 16MiB"}}},
		"address without a port":  {pods + "server: {address: localhost}\n", []Problem{{"server.address", 2, `"localhost"`, anAddress}}},
		"address off":             {pods + "server: {address: off}\n", []Problem{{"server.address", 2, `"off"`, anAddress}}},
		"address with a bad port": {pods + "server: {address: ':99999'}\n", []Problem{{"server.address", 2, `":99999"`, anAddress}}},
		"auth without a token":    {pods + "server:\n  auth: {}\n", []Problem{{"server.auth.tokenFile", 3, "missing", aToken}}},
		"auth with a token":       {pods + "server:\n  auth: {token: x}\n", []Problem{{"server.auth.token", 3, "unknown key", "tokenFile"}, {"server.auth.tokenFile", 3, "missing", aToken}}},
		"half of a certificate":   {pods + "server:\n  tls: {certFile: /c}\n", []Problem{{"server.tls.keyFile", 3, "missing", "a file such as /etc/kbridge/http/tls.key"}}},
		"clients and no server":   {pods + "server:\n  tls:\n    clientCAFile: /a\n    keyFile: /k\n", []Problem{{"server.tls.certFile", 3, "missing", "a file such as /etc/kbridge/http/tls.crt"}}},

		"missing resource":         {"cluster: a\nresources:\n  - group: apps\n", []Problem{{"resources[0].resource", 3, "missing", aPlural}}},
		"wildcard resource":        {"resources:\n  - resource: '*'\n", []Problem{{"resources[0].resource", 2, `"*"`, aPlural}}},
		"upper-case resource":      {"resources:\n  - resource: Pods\n", []Problem{{"resources[0].resource", 2, `"Pods"`, aPlural + ": pods, perhaps"}}},
		"resource with its group":  {"resources:\n  - resource: deployments.apps\n", []Problem{{"resources[0].resource", 2, `"deployments.apps"`, aPlural}}},
		"wildcard group":           {resource("group: '*'"), []Problem{{"resources[0].group", 3, `"*"`, "the name of an API group, such as apps, without a version"}}},
		"group with version":       {resource("group: apps/v1"), []Problem{{"resources[0].group", 3, `"apps/v1"`, "the name of an API group, such as apps, without a version"}}},
		"bad version":              {resource("version: '1'"), []Problem{{"resources[0].version", 3, `"1"`, "an API version such as v1 or v1beta1"}}},
		"bad namespace":            {resource("namespaces: [a, Shop]"), []Problem{{"resources[0].namespaces[1]", 3, `"Shop"`, aNamespace}}},
		"bad namespace by line":    {resource("namespaces:", "  - a", "  - b_c"), []Problem{{"resources[0].namespaces[1]", 5, `"b_c"`, aNamespace}}},
		"bad excluded namespace":   {resource("excludeNamespaces: ['']"), []Problem{{"resources[0].excludeNamespaces[0]", 3, `""`, aNamespace}}},
		"namespace twice":          {resource("namespaces: [a, b, a]"), []Problem{{"resources[0].namespaces[2]", 3, `"a"`, "it once, and it is resources[0].namespaces[0] already"}}},
		"both lists of namespaces": {resource("namespaces: [a]", "excludeNamespaces: [a]"), []Problem{{"resources[0].excludeNamespaces", 4, "excludeNamespaces beside namespaces", "one of the two"}}},
		"bad label selector":       {resource("labelSelector: 'a in b'"), []Problem{{"resources[0].labelSelector", 3, `"a in b"`, "a label selector such as app=checkout,tier!=test (unable to parse requirement: found 'b' expected: '(')"}}},
		"bad field selector":       {resource("fieldSelector: a"), []Problem{{"resources[0].fieldSelector", 3, `"a"`, "a field selector such as metadata.name=checkout"}}},
		"unknown type":             {resource("types: [added, modified]"), []Problem{{"resources[0].types[1]", 3, `"modified"`, "one of added, updated, deleted, synced"}}},
		"type twice":               {resource("types: [added, added]"), []Problem{{"resources[0].types[1]", 3, `"added"`, "it once, and it is resources[0].types[0] already"}}},
		"bad drop path":            {resource("drop: [a..b]"), []Problem{{"resources[0].drop[0]", 3, `"a..b"`, "a path such as metadata.labels[example.com/team] (a key is empty)"}}},
		"bad treatment of secrets": {resource("secrets: hide"), []Problem{{"resources[0].secrets", 3, `"hide"`, "one of redact, include"}}},
		"bad data":                 {resource("data: patch"), []Problem{{"resources[0].data", 3, `"patch"`, "one of object, change"}}},
		"resync too often":         {resource("resync: 9s"), []Problem{{"resources[0].resync", 3, "9s", "0 or at least 10s"}}},
		"resync without a unit":    {resource("resync: 600"), []Problem{{"resources[0].resync", 3, "600", aDuration}}},
		"negative resync":          {resource("resync: -1h"), []Problem{{"resources[0].resync", 3, `"-1h"`, aDuration}}},
		"bad start":                {resource("onStart: replay"), []Problem{{"resources[0].onStart", 3, `"replay"`, "one of resume, snapshot"}}},
		"absent sink":              {resource("sinks: [live]"), []Problem{{"resources[0].sinks[0]", 3, `"live"`, "the name of an entry of sinks"}}},
		"sink twice in a resource": {resource("sinks: [a, a]") + "sinks: [{name: a, stdout: {}}]\n", []Problem{{"resources[0].sinks[1]", 3, `"a"`, "it once, and it is resources[0].sinks[0] already"}}},

		"sink without a name":   {pods + "sinks:\n  - stdout: {}\n", []Problem{{"sinks[0].name", 3, "missing", aName}}},
		"sink with a bad name":  {pods + "sinks:\n  - name: A b\n    stdout: {}\n", []Problem{{"sinks[0].name", 3, `"A b"`, aName}}},
		"sink without a kind":   {pods + "sinks:\n  - name: a\n", []Problem{{"sinks[0]", 3, "no kind of sink", "nats, kafka or stdout"}}},
		"sink of two kinds":     {pods + "sinks:\n  - name: a\n    nats: {urls: ['nats://n']}\n    stdout: {}\n", []Problem{{"sinks[0]", 3, "nats and stdout in one entry", "one kind of sink, the other in an entry of its own"}}},
		"two sinks of a name":   {nats() + "  - name: live\n    stdout: {}\n", []Problem{{"sinks[1].name", 6, `"live"`, "a name that no other sink has (line 3 has it)"}}},
		"two sinks on stdout":   {pods + "sinks:\n  - {name: a, stdout: {}}\n  - {name: b, stdout: {}}\n", []Problem{{"sinks[1].stdout", 4, "a second stdout sink", "one, and sinks[0] is one already"}}},
		"two sinks, one file":   {pods + "sinks:\n  - {name: a, stdout: {}, deadLetter: {file: /d/x}}\n  - {name: b, nats: {urls: ['nats://n']}, deadLetter: {file: /d//x}}\n", []Problem{{"sinks[1].deadLetter.file", 4, `"/d/x"`, "a file that no other sink has (line 3 has it)"}}},
		"binary on stdout":      {pods + "sinks: [{name: a, stdout: {}, format: binary}]\n", []Problem{{"sinks[0].format", 2, `"binary"`, "structured: standard output has no headers"}}},
		"bad format":            {pods + "sinks: [{name: a, stdout: {}, format: avro}]\n", []Problem{{"sinks[0].format", 2, `"avro"`, "one of structured, binary"}}},
		"bad size":              {pods + "sinks: [{name: a, stdout: {}, window: {bytes: 64m}}]\n", []Problem{{"sinks[0].window.bytes", 2, `"64m"`, aSize}}},
		"negative size":         {pods + "sinks: [{name: a, stdout: {}, window: {bytes: -1}}]\n", []Problem{{"sinks[0].window.bytes", 2, "-1", aSize}}},
		"list for a size":       {pods + "sinks: [{name: a, stdout: {}, window: {bytes: [1]}}]\n", []Problem{{"sinks[0].window.bytes", 2, "a list", aSize}}},
		"window of nothing":     {pods + "sinks: [{name: a, stdout: {}, window: {bytes: 0, events: 0}}]\n", []Problem{{"sinks[0].window.bytes", 2, "0", "at least 1"}, {"sinks[0].window.events", 2, "0", "at least 1"}}},
		"bad policy when full":  {sink("whenFull: drop"), []Problem{{"sinks[0].whenFull", 5, `"drop"`, "one of fold, block"}}},
		"bad fold":              {sink("foldAfter: soon"), []Problem{{"sinks[0].foldAfter", 5, `"soon"`, aDuration}}},
		"negative fold":         {sink("foldAfter: -5s"), []Problem{{"sinks[0].foldAfter", 5, `"-5s"`, aDuration}}},
		"block after a time":    {sink("foldAfter: 10s", "whenFull: block"), []Problem{{"sinks[0].foldAfter", 5, "foldAfter beside whenFull: block", "one of the two"}}},
		"block after the usual": {sink("whenFull: block", "foldAfter: 5s"), []Problem{{"sinks[0].foldAfter", 6, "foldAfter beside whenFull: block", "one of the two"}}},
		"block after no time":   {sink("whenFull: block", "foldAfter: 0"), []Problem{{"sinks[0].foldAfter", 6, "foldAfter beside whenFull: block", "one of the two"}}},
		"block after soon":      {sink("whenFull: block", "foldAfter: soon"), []Problem{{"sinks[0].foldAfter", 6, `"soon"`, aDuration}}},
		"bad policy, and after": {sink("whenFull: drop", "foldAfter: 1s"), []Problem{{"sinks[0].whenFull", 5, `"drop"`, "one of fold, block"}}},
		"bad poison":            {sink("poison: {attempts: -1, after: -1s}"), []Problem{{"sinks[0].poison.after", 5, `"-1s"`, aDuration}, {"sinks[0].poison.attempts", 5, "-1", "0 to 2147483647"}}},
		"bad oversize":          {sink("oversize: split"), []Problem{{"sinks[0].oversize", 5, `"split"`, "one of deadLetter, trim"}}},
		"letters in two places": {nats() + "    deadLetter:\n      file: /d\n      subject: dead\n", []Problem{{"sinks[0].deadLetter", 6, "file and subject", "one of the two"}}},
		"letters of stdout":     {sink("deadLetter: {subject: dead}"), []Problem{{"sinks[0].deadLetter.subject", 5, `"dead"`, "file: only a nats sink has subjects"}}},
		"letters of no sink":    {pods + "sinks:\n  - name: a\n    deadLetter: {subject: dead}\n", []Problem{{"sinks[0]", 3, "no kind of sink", "nats, kafka or stdout"}}},
		"letters nowhere":       {letters("''"), []Problem{{"sinks[0].deadLetter.subject", 6, `""`, aSubject + "(a token is empty)"}}},
		"letters by a template": {letters("'dead.{name}'"), []Problem{{"sinks[0].deadLetter.subject", 6, `"dead.{name}"`, aSubject + "(this is no template, braces are not allowed)"}}},
		"letters to a wildcard": {letters("'dead.*'"), []Problem{{"sinks[0].deadLetter.subject", 6, `"dead.*"`, aSubject + "(wildcards cannot be published to)"}}},
		"letters to all":        {letters("'dead.>'"), []Problem{{"sinks[0].deadLetter.subject", 6, `"dead.>"`, aSubject + "(wildcards cannot be published to)"}}},
		"letters to the server": {letters("$SYS.dead"), []Problem{{"sinks[0].deadLetter.subject", 6, `"$SYS.dead"`, aSubject + "(subjects that begin with $ belong to the server)"}}},
		"letters with a space":  {letters("dead letters"), []Problem{{"sinks[0].deadLetter.subject", 6, `"dead letters"`, aSubject + "(spaces and control characters are not allowed)"}}},
		"letters at a number":   {letters("1"), []Problem{{"sinks[0].deadLetter.subject", 6, "1", aQuoted}}},

		"state of no kind":      {pods + "state: {}\n", []Problem{{"state.file", 2, "missing", aState}}},
		"nothing for a state":   {pods + "state:\n", []Problem{{"state", 2, "nothing", "a map"}}},
		"string for a state":    {pods + "state: /var/lib/kbridge\n", []Problem{{"state", 2, `"/var/lib/kbridge"`, "a map"}}},
		"unknown kind of state": {pods + "state: {redis: {}}\n", []Problem{{"state.redis", 2, "unknown key", "file"}}},
		"folder for a file":     {pods + "state:\n  file: /var/lib/kbridge\n", []Problem{{"state.file", 3, `"/var/lib/kbridge"`, "a map"}}},
		"state without a dir":   {pods + "state:\n  file: {}\n", []Problem{{"state.file.dir", 3, "missing", "a folder such as /var/lib/kbridge"}}},
		"state in no dir":       {pods + "state:\n  file:\n    dir: ''\n", []Problem{{"state.file.dir", 4, "missing", "a folder such as /var/lib/kbridge"}}},

		"no url":                {pods + "sinks:\n  - name: a\n    nats: {}\n", []Problem{{"sinks[0].nats.urls", 4, "none", "at least one URL such as nats://nats:4222"}}},
		"url for urls":          {pods + "sinks:\n  - name: a\n    nats: {url: nats://n}\n", []Problem{{"sinks[0].nats.url", 4, "unknown key", "did you mean urls?"}, {"sinks[0].nats.urls", 4, "none", "at least one URL such as nats://nats:4222"}}},
		"url of another scheme": {pods + "sinks: [{name: a, nats: {urls: ['http://n:1']}}]\n", []Problem{{"sinks[0].nats.urls[0]", 2, `"http://n:1"`, aURL}}},
		"url without a scheme":  {pods + "sinks: [{name: a, nats: {urls: ['nats:4222']}}]\n", []Problem{{"sinks[0].nats.urls[0]", 2, `"nats:4222"`, aURL}}},
		"url without a host":    {pods + "sinks: [{name: a, nats: {urls: ['nats://:4222']}}]\n", []Problem{{"sinks[0].nats.urls[0]", 2, `"nats://:4222"`, aURL}}},
		"url with a bad port": {pods + "sinks: [{name: a, nats: {urls: ['nats://n:0', 'nats://n:', 'nats://n:70000']}}]\n", []Problem{
			{"sinks[0].nats.urls[0]", 2, `"nats://n:0"`, "a port from 1 to 65535"}, {"sinks[0].nats.urls[1]", 2, `"nats://n:"`, "a port from 1 to 65535"},
			{"sinks[0].nats.urls[2]", 2, `"nats://n:70000"`, "a port from 1 to 65535"}}},
		"url with a query":                  {pods + "sinks: [{name: a, nats: {urls: ['nats://n?a=b']}}]\n", []Problem{{"sinks[0].nats.urls[0]", 2, `"nats://n?a=b"`, "a URL without ? and #"}}},
		"websocket and plain":               {pods + "sinks: [{name: a, nats: {urls: ['nats://n', 'wss://n']}}]\n", []Problem{{"sinks[0].nats.urls", 2, "WebSocket URLs beside others", "only ws and wss, or only nats and tls"}}},
		"password in a url":                 {pods + "sinks: [{name: a, nats: {urls: ['nats://u:hunter2@n']}}]\n", []Problem{{"sinks[0].nats.urls[0]", 2, `"nats://***@n"`, noUserinfo}}},
		"odd password in a url":             {pods + "sinks: [{name: a, nats: {urls: ['nats://u:hun/t@er2%@n']}}]\n", []Problem{{"sinks[0].nats.urls[0]", 2, `"nats://***@n"`, noUserinfo}}},
		"password without scheme":           {pods + "sinks: [{name: a, nats: {urls: ['u:hunter2@n:4222']}}]\n", []Problem{{"sinks[0].nats.urls[0]", 2, `"***@n:4222"`, noUserinfo}}},
		"password where a list is expected": {pods + "sinks: [{name: a, nats: {urls: 'nats://u:hunter2@n'}}]\n", []Problem{{"sinks[0].nats.urls", 2, `"nats://***@n"`, "a list"}}},
		"password in the file":              {nats("password: hunter2"), []Problem{{"sinks[0].nats.password", 6, "unknown key", "passwordFile, the path of a file with the password: it never stands in this one"}}},
		"token in the file":                 {nats("token: hunter2"), []Problem{{"sinks[0].nats.token", 6, "unknown key", "tokenFile, the path of a file with the token: it never stands in this one"}}},
		"two logins":                        {nats("creds: /c", "tokenFile: /t"), []Problem{{"sinks[0].nats", 4, "creds and tokenFile", "one kind of authentication"}}},
		"three logins":                      {nats("nkey: /n", "user: u", "passwordFile: /p", "creds: /c"), []Problem{{"sinks[0].nats", 4, "creds and nkey and user", "one kind of authentication"}}},
		"user without password":             {nats("user: u"), []Problem{{"sinks[0].nats.passwordFile", 4, "missing", "a file, as there is user"}}},
		"password without user":             {nats("passwordFile: /p"), []Problem{{"sinks[0].nats.user", 4, "missing", "it, as there is passwordFile"}}},
		"certificate without key":           {nats("tls: {cert: /c}"), []Problem{{"sinks[0].nats.tls.key", 6, "missing", "a file, as there is cert"}}},
		"key without certificate":           {nats("tls: {key: /k}"), []Problem{{"sinks[0].nats.tls.cert", 6, "missing", "it, as there is key"}}},
		"bad duration":                      {nats("ackTimeout: 10"), []Problem{{"sinks[0].nats.ackTimeout", 6, "10", aDuration}}},
		"negative duration":                 {nats("ackTimeout: -10s"), []Problem{{"sinks[0].nats.ackTimeout", 6, `"-10s"`, aDuration}}},
		"no time":                           {nats("ackTimeout: 0s"), []Problem{{"sinks[0].nats.ackTimeout", 6, "0s", "100ms to 24d"}}},
		"too much time":                     {nats("ackTimeout: 25d"), []Problem{{"sinks[0].nats.ackTimeout", 6, "600h0m0s", "100ms to 24d"}}},
		"empty subject":                     {nats("subject: ''"), []Problem{{"sinks[0].nats.subject", 6, `""`, theSubject + "(a token is empty)"}}},
		"bad placeholder":                   {nats("subject: 'k8s.{pod}'"), []Problem{{"sinks[0].nats.subject", 6, `"k8s.{pod}"`, theSubject + `("{pod}" is unknown, it may be one of cluster, group, version, resource, kind, namespace, name, type)`}}},
		"wildcard subject":                  {nats("subject: 'k8s.>'"), []Problem{{"sinks[0].nats.subject", 6, `"k8s.>"`, theSubject + "(wildcards cannot be published to)"}}},
		"subject not stored":                {nats("subject: 'kube.{name}'"), []Problem{{"sinks[0].nats.subject", 6, `"kube.{name}"`, "a subject that the stream stores: k8s.>"}}},
		"default subject not stored":        {nats("stream: {subjects: [audit.>, a]}"), []Problem{{"sinks[0].nats.subject", 4, `"k8s.{cluster}.{group}.{resource}.{namespace}.{name}"`, "a subject that the stream stores: audit.>, a"}}},
		"subject of another cluster":        {nats("stream: {subjects: [k8s.dev.>]}") + "cluster: prod\n", []Problem{{"sinks[0].nats.subject", 4, `"k8s.{cluster}.{group}.{resource}.{namespace}.{name}"`, "a subject that the stream stores: k8s.dev.>"}}},
		"stream without a name":             {nats("stream: {name: ''}"), []Problem{{"sinks[0].nats.stream.name", 6, "missing", aStream}}},
		"stream with a bad name":            {nats("stream: {name: a.b}"), []Problem{{"sinks[0].nats.stream.name", 6, `"a.b"`, aStream}}},
		"string for a stream":               {nats("stream: KBRIDGE"), []Problem{{"sinks[0].nats.stream", 6, `"KBRIDGE"`, "a map"}}},
		"bad stream subject":                {nats("stream: {subjects: ['k8s.>.a']}"), []Problem{{"sinks[0].nats.stream.subjects[0]", 6, `"k8s.>.a"`, "a subject such as k8s.> (* must be a whole token, > the whole last token)"}}},
		"stream subject twice":              {nats("stream: {subjects: ['k8s.>', 'k8s.>']}"), []Problem{{"sinks[0].nats.stream.subjects[1]", 6, `"k8s.>"`, "it once, and it is sinks[0].nats.stream.subjects[0] already"}}},
		"short age":                         {nats("stream: {maxAge: 1ms}"), []Problem{{"sinks[0].nats.stream.maxAge", 6, "1ms", "0 or at least 100ms"}, {"sinks[0].nats.stream.duplicates", 6, "2m0s", "at most maxAge, which is 1ms"}}},
		"no duplicates":                     {nats("stream: {duplicates: 0}"), []Problem{{"sinks[0].nats.stream.duplicates", 6, "0s", "at least 100ms"}}},
		"duplicates past the age":           {nats("stream: {duplicates: 2d}"), []Problem{{"sinks[0].nats.stream.duplicates", 6, "48h0m0s", "at most maxAge, which is 24h0m0s"}}},
		"no replica":                        {nats("stream: {replicas: 0}"), []Problem{{"sinks[0].nats.stream.replicas", 6, "0", "1 to 5"}}},
		"six replicas":                      {nats("stream: {replicas: 6}"), []Problem{{"sinks[0].nats.stream.replicas", 6, "6", "1 to 5"}}},
		"bad storage":                       {nats("stream: {storage: disk}"), []Problem{{"sinks[0].nats.stream.storage", 6, `"disk"`, "one of file, memory"}}},
		"bad discard":                       {nats("stream: {discard: all}"), []Problem{{"sinks[0].nats.stream.discard", 6, `"all"`, "one of old, new"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkProblems(t, c.text, c.want)
		})
	}
}

func checkProblems(t *testing.T, text string, want []Problem) {
	t.Helper()
	_, err := Parse("f.yaml", []byte(text))
	var problems *Error
	if err != nil && !errors.As(err, &problems) {
		t.Fatalf("%T is no *Error", err)
	}
	var got []Problem
	if problems != nil {
		got = problems.Problems
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in\n%s\n%s", text, diff)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error tells a secret: %v", err)
	}
}

func TestFieldsThatEventsRestOnCannotBeDropped(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.uid", "metadata[resourceVersion]"} {
		checkProblems(t, resource("drop: ['"+p+"']"), []Problem{{"resources[0].drop[0]", 3, fmt.Sprintf("%q", p), "a field that events can do without"}})
	}
	mustParse(t, resource("drop: [metadata.labels, spec, status.kind]"))
}

func TestEntriesThatSendAnObjectTwiceToASinkAreAProblem(t *testing.T) {
	t.Parallel()
	sinks := "sinks: [{name: a, stdout: {}}, {name: b, nats: {urls: ['nats://n']}}]\n"
	for _, c := range []struct {
		one, two string
		overlap  bool
	}{
		{"", "", true},
		{"group: core", "version: v1", true},
		{"labelSelector: a=b", "labelSelector: a!=b", true},
		{"types: [added]", "types: [deleted]", true},
		{"namespaces: [x, y]", "", true},
		{"namespaces: [x, y]", "namespaces: [z, y]", true},
		{"namespaces: [x]", "excludeNamespaces: [z]", true},
		{"excludeNamespaces: [x]", "excludeNamespaces: [z]", true},
		{"sinks: [a, b]", "sinks: [b]", true},
		{"sinks: [a]", "", true},
		{"namespaces: [x]", "namespaces: [y]", false},
		{"namespaces: [x]", "excludeNamespaces: [z, x]", false},
		{"excludeNamespaces: [z, x]", "namespaces: [x]", false},
		{"sinks: [a]", "sinks: [b]", false},
		{"group: metrics.k8s.io", "", false},
	} {
		text := fmt.Sprintf("resources:\n  - {resource: pods, %s}\n  - {resource: nodes}\n  - {resource: pods, %s}\n", c.one, c.two) + sinks
		var want []Problem
		if c.overlap {
			want = []Problem{{"resources[2]", 4, "pods for the same sink as resources[0] (line 2)", disjoint}}
		}
		checkProblems(t, text, want)
	}
}

func TestAnEntryOfWrongFormIsNotSaidToOverlap(t *testing.T) {
	t.Parallel()
	checkProblems(t, "resources:\n  - {resource: pods, namespaces: [a]}\n  - {resource: pods, namespaces: b}\n",
		[]Problem{{"resources[1].namespaces", 3, `"b"`, "a list"}})
}

func TestAnEntryOfWrongFormDoesNotHideThatOthersOverlap(t *testing.T) {
	t.Parallel()
	checkProblems(t, "resources:\n  - {resource: pods}\n  - {resource: pods}\n  - {resource: nodes, filter2: x}\n", []Problem{
		{"resources[1]", 3, "pods for the same sink as resources[0] (line 2)", disjoint},
		{"resources[2].filter2", 4, "unknown key", "one of name, group, version, resource, namespaces, excludeNamespaces, labelSelector, fieldSelector, types, resync, onStart, drop, dropDefaults, secrets, data, verify, sinks"},
	})
}

func TestWhatStandsBeforeAnAtSignIsNeverShown(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"nats://u:hunter2@h": `"nats://***@h"`, "u:hunter2@h": `"***@h"`, "u:hunter2://x@h": `"***@h"`, "nats://a:x@h1,nats://b:y@h2": `"nats://***@h2"`, "a": `"a"`,
	} {
		if got := show(s); got != want {
			t.Errorf("%s is shown as %s, want %s", s, got, want)
		}
	}
}

func TestProblemsOfFormAndOfMeaningAreReportedAtOnceInTheOrderOfLines(t *testing.T) {
	t.Parallel()
	_, err := Parse("kbridge.yaml", []byte(`cluster: a/b
kubernetes: {qps: -1}
resources:
  - resource: pods
    namespace: [shop]
  - resource: secrets
    namespaces: [Shop]
    sinks: [audti]
sinks:
  - name: audit
    nats:
      urls: [nats://me:hunter2@n, http://n]
      ackTimeout: soon
      creds: /c
      user: me
  - name: audit
    redis: {}
`))
	want := `kbridge.yaml:1: cluster: "a/b", expected letters, digits, '.', '_' and '-'
kbridge.yaml:2: kubernetes.qps: -1, expected a number from 0.001 to 1000000
kbridge.yaml:5: resources[0].namespace: unknown key, did you mean namespaces?
kbridge.yaml:7: resources[1].namespaces[0]: "Shop", expected ` + aNamespace + `
kbridge.yaml:8: resources[1].sinks[0]: "audti", expected the name of an entry of sinks
kbridge.yaml:11: sinks[0].nats: creds and user, expected one kind of authentication
kbridge.yaml:11: sinks[0].nats.passwordFile: missing, expected a file, as there is user
kbridge.yaml:12: sinks[0].nats.urls[0]: "nats://***@n", expected ` + noUserinfo + `
kbridge.yaml:12: sinks[0].nats.urls[1]: "http://n", expected ` + aURL + `
kbridge.yaml:13: sinks[0].nats.ackTimeout: "soon", expected ` + aDuration + `
kbridge.yaml:16: sinks[1].name: "audit", expected a name that no other sink has (line 10 has it)
kbridge.yaml:17: sinks[1].redis: unknown key, expected one of name, format, window, whenFull, foldAfter, oversize, poison, deadLetter, nats, kafka, stdout`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestAFileCannotGrowByItsAliases(t *testing.T) {
	t.Parallel()
	text := "resources:\n  - &r {resource: pods, namespaces: [" + strings.Repeat("a,", 200) + "a]}\n" + strings.Repeat("  - *r\n", 200)
	_, err := Parse("f", []byte(text))
	if err == nil || !strings.Contains(err.Error(), "more than 10000 values through aliases, expected a file that does not grow so much by its aliases") {
		t.Errorf("got %v", err)
	}
	_, err = Parse("f", []byte("resources: &r\n  - resource: *r\n"))
	if err == nil || err.Error() != "f:2: resources[0].resource: a list, expected a string" {
		t.Errorf("an alias within its own anchor yields %v", err)
	}
}

func TestLongAndOddValuesStayOnOneShortLine(t *testing.T) {
	t.Parallel()
	_, err := Parse("f", []byte(pods+"cluster: \"a\\nb"+strings.Repeat("x", 500)+"\"\n"))
	if err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 200 {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", pods, nats(), nats("user: u", "tls: {cert: x}", "stream: {maxAge: 7d, maxBytes: 1.5Gi}", "subject: 'a.{name}'"),
		resource("namespaces: &a [x]", "excludeNamespaces: *a", "drop: [a.b, 'a[b.c]']", "labelSelector: a in (b)", "fieldSelector: a=b"),
		"resources: &r [*r]", "{? [a] : b}", "a: b\n---\nc", "<<: {a: b}", "resources: !!set {a}", "!!binary aGk=: 1", "kubernetes: {qps: .nan, burst: 0x1F}",
		"sinks: [{name: a, stdout: }, {name: a, nats: {urls: ['nats://u:p@h']}}]",
		resource("resync: 1d", "onStart: snapshot", "types: [added]", "secrets: include") + "state: {file: {dir: /d}}", pods + "state: {}",
		pods + "server: {address: ':1', auth: {tokenFile: /t}, tls: {certFile: /c, keyFile: /k, clientCAFile: /a}, debug: true}", pods + "server: {auth: {}, tls: {}}",
		sink("whenFull: block", "foldAfter: 1s", "oversize: trim", "poison: {attempts: 3, after: 1m}", "deadLetter: {file: /d, subject: a.b}"), letters("a.{name}"),
		nats("stream: {storage: memory}") + "    whenFull: block\n  - {name: b, stdout: {}, foldAfter: 0}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err == nil {
			if err := c.Validate(); err != nil {
				t.Errorf("Parse takes what Validate refuses: %v", err)
			}
			for _, r := range c.Resources {
				if _, err := r.DropPaths(); err != nil {
					t.Error(err)
				}
			}
			for _, w := range c.Warnings() {
				if path, text, ok := strings.Cut(w, ": "); !ok || path == "" || text == "" || w != printable(w) {
					t.Errorf("the warning %q is no line with a path", w)
				}
			}
			return
		}
		var e *Error
		if !errors.As(err, &e) || len(e.Problems) == 0 {
			t.Fatalf("%T %v is no *Error with problems", err, err)
		}
		if n := strings.Count(err.Error(), "\n") + 1; n != len(e.Problems) {
			t.Errorf("%d lines for %d problems: %q", n, len(e.Problems), err)
		}
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + strings.Count(string(data), "\u0085") + strings.Count(string(data), "\u2028") + strings.Count(string(data), "\u2029") + 1
		for _, p := range e.Problems {
			if p.Line < 1 || p.Line > lines || p.Value == "" || p.Want == "" {
				t.Errorf("%+v of %d lines", p, lines)
			}
		}
	})
}
