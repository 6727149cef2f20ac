package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

type selectorRequest struct {
	Selector *metav1.LabelSelector `json:"selector"`
	Text     string                `json:"text"`
	Sets     []map[string]string   `json:"sets"`
}

type selectorReply struct {
	Error     *string `json:"error"`
	Canonical string  `json:"canonical"`
	Matches   []bool  `json:"matches"`
}

func labelSelector(request selectorRequest) selectorReply {
	selector, err := metav1.LabelSelectorAsSelector(request.Selector)
	return matchLabels(selector, err, request.Sets)
}

func labelText(request selectorRequest) selectorReply {
	selector, err := labels.Parse(request.Text)
	return matchLabels(selector, err, request.Sets)
}

func matchLabels(selector labels.Selector, err error, sets []map[string]string) selectorReply {
	if err != nil {
		return selectorReply{Error: text(err)}
	}
	reply := selectorReply{Canonical: selector.String(), Matches: []bool{}}
	for _, set := range sets {
		reply.Matches = append(reply.Matches, selector.Matches(labels.Set(set)))
	}
	return reply
}

func fieldSelector(request selectorRequest) selectorReply {
	selector, err := fields.ParseSelector(request.Text)
	if err != nil {
		return selectorReply{Error: text(err)}
	}
	reply := selectorReply{Canonical: selector.String(), Matches: []bool{}}
	for _, set := range request.Sets {
		reply.Matches = append(reply.Matches, selector.Matches(fields.Set(set)))
	}
	return reply
}

type syntaxReply struct {
	Errors []string `json:"errors"`
}

func labelKey(request textRequest) syntaxReply {
	return syntaxReply{Errors: content.IsLabelKey(request.Text)}
}

func labelValue(request textRequest) syntaxReply {
	return syntaxReply{Errors: content.IsLabelValue(request.Text)}
}

type nodeRequest struct {
	Selector *v1.NodeSelector             `json:"selector"`
	Terms    []v1.PreferredSchedulingTerm `json:"terms"`
	Spec     v1.PodSpec                   `json:"spec"`
	Nodes    []nodeSketch                 `json:"nodes"`
}

type nodeSketch struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

func (n nodeSketch) node() *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
}

type nodeMatch struct {
	Error   *string `json:"error"`
	Matches bool    `json:"matches"`
}

type nodeReply struct {
	// Error of all terms at once.
	Error  *string     `json:"error"`
	Nodes  []nodeMatch `json:"nodes"`
	Scores []int64     `json:"scores"`
}

func nodeSelector(request nodeRequest) nodeReply {
	_, err := nodeaffinity.NewNodeSelector(request.Selector)
	lazy := nodeaffinity.NewLazyErrorNodeSelector(request.Selector)
	reply := nodeReply{Error: text(err), Nodes: []nodeMatch{}}
	for _, sketch := range request.Nodes {
		matches, err := lazy.Match(sketch.node())
		reply.Nodes = append(reply.Nodes, nodeMatch{Error: text(err), Matches: matches})
	}
	return reply
}

func preferredTerms(request nodeRequest) nodeReply {
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(request.Terms)
	if err != nil {
		return nodeReply{Error: text(err)}
	}
	reply := nodeReply{Scores: []int64{}}
	for _, sketch := range request.Nodes {
		reply.Scores = append(reply.Scores, terms.Score(sketch.node()))
	}
	return reply
}

func podAffinity(request nodeRequest) nodeReply {
	required := nodeaffinity.GetRequiredNodeAffinity(&v1.Pod{Spec: request.Spec})
	reply := nodeReply{Nodes: []nodeMatch{}}
	for _, sketch := range request.Nodes {
		matches, err := required.Match(sketch.node())
		reply.Nodes = append(reply.Nodes, nodeMatch{Error: text(err), Matches: matches})
	}
	return reply
}

type tolerationRequest struct {
	Toleration v1.Toleration `json:"toleration"`
	Taint      v1.Taint      `json:"taint"`
}

func toleration(request tolerationRequest) nodeMatch {
	// The comparing operators are off by default in this version.
	tolerates := request.Toleration.ToleratesTaint(klog.Background(), &request.Taint, false)
	return nodeMatch{Matches: tolerates}
}
