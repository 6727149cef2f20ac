package main

import (
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

type patchRequest struct {
	Kind     string          `json:"kind"`
	Document json.RawMessage `json:"document"`
	Patch    json.RawMessage `json:"patch"`
}

type patchReply struct {
	Error    *string         `json:"error"`
	Document json.RawMessage `json:"document,omitempty"`
}

func patched(document []byte, err error) patchReply {
	if err != nil {
		return patchReply{Error: text(err)}
	}
	return patchReply{Document: document}
}

func jsonPatch(request patchRequest) (reply patchReply) {
	// The library falls over when it compares a null inside a list.
	defer func() {
		if fault := recover(); fault != nil {
			reply = patched(nil, fmt.Errorf("panic: %v", fault))
		}
	}()
	patch, err := jsonpatch.DecodePatch(request.Patch)
	if err != nil {
		return patched(nil, err)
	}
	return patched(patch.Apply(request.Document))
}

func mergePatch(request patchRequest) patchReply {
	return patched(jsonpatch.MergePatch(request.Document, request.Patch))
}

func strategicPatch(request patchRequest) patchReply {
	var kind any = corev1.Pod{}
	if request.Kind == "Deployment" {
		kind = appsv1.Deployment{}
	}
	return patched(strategicpatch.StrategicMergePatch(request.Document, request.Patch, kind))
}

// ownersRequest is a history of writes to one object of a kind with the given OpenAPI schema.
type ownersRequest struct {
	Schema *spec.Schema `json:"schema"`
	Steps  []struct {
		Apply   bool           `json:"apply"`
		Manager string         `json:"manager"`
		Force   bool           `json:"force"`
		Object  map[string]any `json:"object"`
	} `json:"steps"`
}

type ownersReply struct {
	Error *string `json:"error"`
	Live  any     `json:"live"`
}

func owners(request ownersRequest) []ownersReply {
	kind := schema.GroupVersionKind{Group: "x.io", Version: "v1", Kind: "L"}
	converter, err := managedfields.NewTypeConverter(map[string]*spec.Schema{"io.x.v1.L": request.Schema}, false)
	if err != nil {
		return []ownersReply{{Error: text(err)}}
	}
	object := managedfieldstest.NewTestFieldManager(converter, kind)
	replies := []ownersReply{}
	for _, step := range request.Steps {
		new := &unstructured.Unstructured{Object: step.Object}
		if step.Apply {
			err = object.Apply(new, step.Manager, step.Force)
		} else {
			err = object.Update(new, step.Manager)
		}
		live := object.Live().DeepCopyObject().(*unstructured.Unstructured)
		entries := live.GetManagedFields()
		for i := range entries {
			entries[i].Time = nil
		}
		live.SetManagedFields(entries)
		replies = append(replies, ownersReply{Error: text(err), Live: live.Object})
	}
	return replies
}
