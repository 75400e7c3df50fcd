// Predict with layers models in TensorFlow.js: node predict.js FOLDER...
//
// Each folder has model/model.json with its shards, and inputs.json: a list of inputs, each with shape, dtype and flat
// values. It gets outputs.json, a list of outputs with shape and flat values, or error.txt with what TensorFlow.js says.
// Without inputs, the model is only loaded.
// node predict.js without a folder prints the names of the classes and functions that configs can name.
"use strict";

const fs = require("fs");
const path = require("path");
const tf = require("@tensorflow/tfjs");

function handler(file) {
  const load = async () => {
    const { modelTopology, weightsManifest } = JSON.parse(fs.readFileSync(file, "utf8"));
    const shards = weightsManifest.flatMap((group) => group.paths);
    const bytes = shards.map((name) => fs.readFileSync(path.join(path.dirname(file), name)));
    const weightSpecs = weightsManifest.flatMap((group) => group.weights);
    return { modelTopology, weightSpecs, weightData: new Uint8Array(Buffer.concat(bytes)).buffer };
  };
  return { load };
}

async function predict(folder) {
  const model = await tf.loadLayersModel(handler(path.join(folder, "model", "model.json")));
  const inputs = JSON.parse(fs.readFileSync(path.join(folder, "inputs.json"), "utf8"));
  if (!inputs.length) return [];
  const tensors = inputs.map(({ shape, dtype, values }) => tf.tensor(values, shape, dtype));
  const outputs = [model.predict(tensors.length === 1 ? tensors[0] : tensors)].flat();
  // JSON has no NaN and no infinities
  return outputs.map((one) => ({ shape: one.shape, values: Array.from(one.dataSync(), String) }));
}

async function main(folders) {
  await tf.setBackend("cpu");
  for (const folder of folders) {
    try {
      fs.writeFileSync(path.join(folder, "outputs.json"), JSON.stringify(await predict(folder)));
    } catch (error) {
      fs.writeFileSync(path.join(folder, "error.txt"), error.message);
    }
    tf.disposeVariables();
  }
}

const folders = process.argv.slice(2);
if (folders.length) {
  main(folders);
} else {
  console.log(JSON.stringify(Object.keys(tf.serialization.SerializationMap.getMap().classNameMap).sort()));
}
