-- Undo tables.sql and all functions.
DROP SCHEMA IF EXISTS "@schema@" CASCADE;
