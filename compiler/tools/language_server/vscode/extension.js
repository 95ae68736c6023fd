// Starts `nacre lsp` for the model files of a window.

const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate() {
  const settings = workspace.getConfiguration("nacre");
  const server = { command: settings.get("command"), args: ["lsp"] };
  client = new LanguageClient("nacre", "Nacre", server, {
    documentSelector: [{ scheme: "file", language: "nacre" }],
    initializationOptions: { checkpoint: settings.get("checkpoint") },
    synchronize: { configurationSection: "nacre" },
  });
  return client.start();
}

function deactivate() {
  return client && client.stop();
}

module.exports = { activate, deactivate };
