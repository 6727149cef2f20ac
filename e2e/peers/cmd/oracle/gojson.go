package main

import (
	"encoding/json"
	"errors"
)

func init() {
	operations["gojson"] = answer(goJSON)
}

// Shapes whose fields meet every rule of the decoder: pointers, plain values, nested structs, maps
// by text and by number, lists, and anything.
type outer struct {
	Enable   *bool            `json:"enable,omitempty"`
	Percent  *int64           `json:"percent,omitempty"`
	Count    int32            `json:"count"`
	Ratio    float64          `json:"ratio"`
	Name     string           `json:"name,omitempty"`
	Inner    inner            `json:"inner"`
	Pointer  *inner           `json:"pointer,omitempty"`
	Table    map[string]inner `json:"table,omitempty"`
	ByNumber map[int32]string `json:"byNumber,omitempty"`
	List     []inner          `json:"list,omitempty"`
	Any      any              `json:"any,omitempty"`
}

type inner struct {
	CPUQOS    *int64 `json:"cpuQos,omitempty"`
	MemoryQOS *int64 `json:"memoryQos,omitempty"`
}

type goJSONRequest struct {
	Document string `json:"document"`
}

type goJSONReply struct {
	// Text is the document decoded and encoded again.
	Text *string `json:"text"`
	// Syntax is the error's text when the document is not JSON, Offset the bytes read until then.
	Syntax *string `json:"syntax"`
	Offset int64   `json:"offset"`
}

func goJSON(request goJSONRequest) goJSONReply {
	var value outer
	err := json.Unmarshal([]byte(request.Document), &value)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return goJSONReply{Syntax: text(err), Offset: syntax.Offset}
	}
	if err != nil {
		return goJSONReply{}
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return goJSONReply{}
	}
	written := string(encoded)
	return goJSONReply{Text: &written}
}
