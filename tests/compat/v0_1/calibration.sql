BEGIN TRANSACTION;
CREATE TABLE calibration (
                backend TEXT NOT NULL, model TEXT NOT NULL, factor REAL NOT NULL,
                samples INTEGER NOT NULL, PRIMARY KEY (backend, model)) WITHOUT ROWID;
INSERT INTO "calibration" VALUES('claude','claude-haiku',1.24985045340066402985e+00,3);
COMMIT;
PRAGMA user_version = 1;
