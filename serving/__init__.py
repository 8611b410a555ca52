"""How a model is used: export, client, local server. Imports `sat_tf`, never `training`."""
